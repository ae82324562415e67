//! Embeds the core component.
