//! Claiming and releasing whole blocks (`calico.md` 2.10).

use super::assign::check_holder;
use super::claim::{Unclaim, claim, load_own, unclaim};
use super::search::Slices;
use super::session::{Session, Step, tried};
use super::{AffinityOutcome, AffinityRelease, Call, Error, Holder};
use crate::limits::CLAIM_BLOCKS_MAX;
use crate::net::{Family, Prefix};
use crate::objects::keys::{affinities_prefix, affinity_of_key, owned_of_key, owned_prefix};
use std::collections::BTreeSet;

/// Claims every block of a prefix. See [`super::claim_affinities`].
pub(super) fn claim_all(call: &mut Call<'_>, holder: &Holder, cidr: Prefix) -> Result<Vec<AffinityOutcome>, Error> {
    check_holder(holder)?;
    let length = tried(call, |session, _| {
        let world = session.world()?;
        let Some(pool) = world.enabled_pool_of(cidr) else { return Err(Error::NotInAPool(cidr.base()).into()) };
        Ok(pool.block_length)
    })?;
    let invalid = |remedy: String| Error::Invalid { field: "cidr".into(), value: cidr.to_string(), remedy };
    if cidr.length() > length {
        return Err(invalid(format!("the prefix must hold at least one block of /{length}")));
    }
    if u32::from(length - cidr.length()) > CLAIM_BLOCKS_MAX.ilog2() {
        return Err(invalid(format!("claim at most {CLAIM_BLOCKS_MAX} blocks of /{length} at once")));
    }
    let slices = Slices::between(cidr, length);
    let blocks = (0..1u128 << u32::from(length - cidr.length())).filter_map(|index| slices.nth(index));
    let outcomes = blocks
        .map(|block| AffinityOutcome { block, outcome: tried(call, |session, _| claim_block(session, holder, block)) });
    Ok(outcomes.collect())
}

/// Claims one block.
pub(super) fn claim_block(session: &mut Session<'_, '_>, holder: &Holder, block: Prefix) -> Step<()> {
    let found = session.block(block)?;
    let claimed = match &found {
        Some(found) if found.object.holder().as_ref() != Some(holder) => {
            return Err(Error::ClaimedBy(found.object.holder()).into());
        }
        Some(_) => load_own(session, holder, block, false, None)?,
        None => {
            if let Some(other) = super::search::overlapping(session, block)? {
                return Err(Error::Overlap(block, other).into());
            }
            let affinity = session.affinity(holder, block)?;
            claim(session, holder, block, affinity, None)?
        }
    };
    match claimed {
        Some(_) => Ok(()),
        // Somebody was faster, or made a block that overlaps: the next attempt sees which.
        None => Err(super::session::Stop::Again),
    }
}

/// Releases affinities. See [`super::release_affinities`].
pub(super) fn release_all(call: &mut Call<'_>, asked: &AffinityRelease) -> Result<Vec<AffinityOutcome>, Error> {
    let mut claims: BTreeSet<(Holder, Prefix)> = tried(call, |session, _| {
        let mut claims = BTreeSet::new();
        let prefixes = match &asked.holder {
            Some(holder) => vec![affinities_prefix(holder, Family::V4), affinities_prefix(holder, Family::V6)],
            None => vec!["affinity/".to_owned()],
        };
        for prefix in prefixes {
            let entries = session.scan(&prefix, true)?;
            claims.extend(entries.iter().filter_map(|entry| affinity_of_key(&entry.key)));
        }
        // A block whose affinity was lost is still its holder's.
        let prefixes = match &asked.holder {
            Some(holder) => vec![owned_prefix(holder, Family::V4), owned_prefix(holder, Family::V6)],
            None => vec!["owned/".to_owned()],
        };
        for prefix in prefixes {
            let entries = session.scan(&prefix, true)?;
            claims.extend(entries.iter().filter_map(|entry| owned_of_key(&entry.key)));
        }
        Ok(claims)
    })?;
    claims.retain(|(_, block)| asked.within.is_none_or(|within| within.covers(block)));
    // What was asked for by its name is answered for.
    if let (Some(holder), Some(within)) = (&asked.holder, asked.within)
        && super::search::lengths(within.family()).contains(&within.length())
        && claims.is_empty()
    {
        claims.insert((holder.clone(), within));
    }
    if asked.sequence.is_some() && claims.len() > 1 {
        return Err(Error::Invalid {
            field: "sequence".into(),
            value: asked.sequence.unwrap_or_default().to_string(),
            remedy: "a sequence number is of one block: name that block".into(),
        });
    }
    let unclaimed = Unclaim { must_be_empty: asked.must_be_empty, sequence: asked.sequence };
    let outcomes = claims.into_iter().map(|(holder, block)| AffinityOutcome {
        block,
        outcome: tried(call, |session, attempt| match unclaim(session, &holder, block, unclaimed) {
            // An earlier attempt may have been made without being told.
            Err(super::session::Stop::Fail(Error::NotFound(_) | Error::ClaimedBy(None))) if attempt > 0 => Ok(()),
            done => done,
        }),
    });
    Ok(outcomes.collect())
}
