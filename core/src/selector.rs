//! Calico's selector language: which labels an object must have (`calico.md` 1.1).
//!
//! `key == 'value'`, `key != 'value'`, `key in {'a', 'b'}`, `key not in {...}`, `key contains 'x'`, `key starts with 'x'`,
//! `key ends with 'x'`, `has(key)`, `all()`, `global()`, `!`, `&&`, `||` and parentheses. An empty text selects everything.

use crate::ipam::Attributes;
use crate::limits::{SELECTOR_CHARACTERS_MAX, SELECTOR_DEPTH_MAX};
use std::fmt;

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for SelectorError {}

/// A selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    text: String,
    term: Term,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    All,
    Global,
    Has(String),
    Compare { key: String, how: Comparison },
    Not(Box<Term>),
    And(Vec<Term>),
    Or(Vec<Term>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Comparison {
    Is(String),
    IsNot(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
}

impl Default for Selector {
    fn default() -> Self {
        Self { text: String::new(), term: Term::All }
    }
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// Where it is none; also if it has more than 1,024 characters or parentheses nested too deeply.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let length = text.chars().count();
        if length > SELECTOR_CHARACTERS_MAX {
            return Err(SelectorError {
                column: SELECTOR_CHARACTERS_MAX + 1,
                message: format!("a selector has at most {SELECTOR_CHARACTERS_MAX} characters, not {length}"),
            });
        }
        let mut parser = Parser { text, at: 0 };
        parser.skip_space();
        let term = if parser.rest().is_empty() { Term::All } else { parser.any(0)? };
        if !parser.rest().is_empty() {
            return Err(parser.error("&&, || or the end was expected"));
        }
        Ok(Self { text: text.to_owned(), term })
    }

    /// Whether an object with these labels is selected. A label that is absent is unequal to everything.
    pub fn matches(&self, labels: &Attributes) -> bool {
        self.term.matches(labels)
    }

    /// The selector as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it has `global()`, which pools may not (`calico.md` 1.1).
    pub fn has_global(&self) -> bool {
        self.term.has_global()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Term {
    fn matches(&self, labels: &Attributes) -> bool {
        match self {
            Self::All => true,
            // It selects objects outside any namespace; nodes and namespaces are not selected by it here.
            Self::Global => false,
            Self::Has(key) => labels.contains_key(key),
            Self::Not(term) => !term.matches(labels),
            Self::And(terms) => terms.iter().all(|term| term.matches(labels)),
            Self::Or(terms) => terms.iter().any(|term| term.matches(labels)),
            Self::Compare { key, how } => {
                let value = labels.get(key);
                match how {
                    Comparison::Is(wanted) => value == Some(wanted),
                    Comparison::IsNot(unwanted) => value != Some(unwanted),
                    Comparison::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
                    Comparison::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
                    Comparison::Contains(part) => value.is_some_and(|value| value.contains(part.as_str())),
                    Comparison::StartsWith(part) => value.is_some_and(|value| value.starts_with(part.as_str())),
                    Comparison::EndsWith(part) => value.is_some_and(|value| value.ends_with(part.as_str())),
                }
            }
        }
    }

    fn has_global(&self) -> bool {
        match self {
            Self::Global => true,
            Self::Not(term) => term.has_global(),
            Self::And(terms) | Self::Or(terms) => terms.iter().any(Self::has_global),
            Self::All | Self::Has(_) | Self::Compare { .. } => false,
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, message: impl Into<String>) -> SelectorError {
        let column = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
        SelectorError { column, message: message.into() }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Takes a symbol and the space behind it, if it comes next.
    fn take(&mut self, symbol: &str) -> bool {
        let is_next = self.rest().starts_with(symbol);
        if is_next {
            self.at += symbol.len();
            self.skip_space();
        }
        is_next
    }

    /// As `take`, for words: what follows may not go on the word.
    fn take_word(&mut self, word: &str) -> bool {
        let goes_on = self.rest().strip_prefix(word).is_some_and(|rest| rest.starts_with(is_of_key));
        !goes_on && self.take(word)
    }

    fn any(&mut self, depth: usize) -> Result<Term, SelectorError> {
        let mut terms = vec![self.every(depth)?];
        while self.take("||") {
            terms.push(self.every(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::Or(terms) })
    }

    fn every(&mut self, depth: usize) -> Result<Term, SelectorError> {
        let mut terms = vec![self.one(depth)?];
        while self.take("&&") {
            terms.push(self.one(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::And(terms) })
    }

    fn one(&mut self, depth: usize) -> Result<Term, SelectorError> {
        if depth > SELECTOR_DEPTH_MAX {
            return Err(self.error(format!("nested more than {SELECTOR_DEPTH_MAX} deep")));
        }
        if self.take("!") {
            return Ok(Term::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.take("(") {
            let term = self.any(depth + 1)?;
            if !self.take(")") {
                return Err(self.error("a closing parenthesis was expected"));
            }
            return Ok(term);
        }
        for (name, term) in [("all", Term::All), ("global", Term::Global)] {
            let start = self.at;
            if self.take_word(name) {
                if self.take("(") {
                    if !self.take(")") {
                        return Err(self.error(format!("{name}() has nothing between its parentheses")));
                    }
                    return Ok(term);
                }
                self.at = start;
            }
        }
        let start = self.at;
        if self.take_word("has") {
            if self.take("(") {
                let key = self.key()?;
                if !self.take(")") {
                    return Err(self.error("a closing parenthesis was expected"));
                }
                return Ok(Term::Has(key));
            }
            self.at = start;
        }
        let key = self.key()?;
        let how = self.comparison()?;
        Ok(Term::Compare { key, how })
    }

    fn comparison(&mut self) -> Result<Comparison, SelectorError> {
        if self.take("==") {
            return Ok(Comparison::Is(self.literal()?));
        }
        if self.take("!=") {
            return Ok(Comparison::IsNot(self.literal()?));
        }
        if self.take_word("contains") {
            return Ok(Comparison::Contains(self.literal()?));
        }
        for (first, make) in [
            ("starts", Comparison::StartsWith as fn(String) -> Comparison),
            ("ends", Comparison::EndsWith as fn(String) -> Comparison),
        ] {
            if self.take_word(first) {
                if !self.take_word("with") {
                    return Err(self.error(format!("{first} is followed by with")));
                }
                return Ok(make(self.literal()?));
            }
        }
        if self.take_word("not") {
            if !self.take_word("in") {
                return Err(self.error("not is followed by in"));
            }
            return Ok(Comparison::NotIn(self.set()?));
        }
        if self.take_word("in") {
            return Ok(Comparison::In(self.set()?));
        }
        Err(self.error("==, !=, in, not in, contains, starts with or ends with was expected"))
    }

    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        if !self.take("{") {
            return Err(self.error("a set in braces was expected"));
        }
        let mut values = Vec::new();
        if self.take("}") {
            return Ok(values);
        }
        loop {
            values.push(self.literal()?);
            if self.take("}") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(self.error("a comma or a closing brace was expected"));
            }
        }
    }

    fn literal(&mut self) -> Result<String, SelectorError> {
        let Some(quote) = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return Err(self.error("a text in quotes was expected"));
        };
        let inner = self.rest().get(1..).unwrap_or_default();
        let Some(end) = inner.find(quote) else { return Err(self.error("the closing quote is missing")) };
        let value = inner.get(..end).unwrap_or_default().to_owned();
        self.at += end + 2;
        self.skip_space();
        Ok(value)
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        let rest = self.rest();
        let length = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let key = rest.get(..length).unwrap_or_default();
        if key.is_empty() {
            return Err(self.error("a label's name was expected"));
        }
        self.at += length;
        self.skip_space();
        Ok(key.to_owned())
    }
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}
