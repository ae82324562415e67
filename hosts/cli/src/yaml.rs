//! YAML and JSON files, with the place of each field, so that the core's problems can be shown where they are.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How deep a document may be nested: resources have five levels.
const DEPTH_MAX: usize = 64;

/// How many values a text may have: more than the largest file has without aliases. An alias to lists of aliases could
/// stand for more than any memory holds.
const VALUES_MAX: usize = 4 << 20;

/// A document and where its fields are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// Line and column, from 1, by path (`spec.reservedCIDRs[2]`); the document itself under the empty path.
    places: BTreeMap<String, (usize, usize)>,
}

impl Document {
    /// Where a field is; for one that is not there, where it would belong.
    pub(crate) fn place(&self, path: &str) -> (usize, usize) {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return *place;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.places.get("").copied().unwrap_or((1, 1)),
            }
        }
    }
}

/// What is wrong with a text, and where.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

fn place_of(span: &Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}

/// Reads all documents of a text. JSON is YAML too. Empty documents are left out.
pub(crate) fn read(text: &str) -> Result<Vec<Document>, Malformed> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { events: Parser::new_from_str(text), anchors: BTreeMap::new(), values: 0 };
    let mut documents = Vec::new();
    while let Some((event, span)) = reader.next()? {
        if !matches!(event, Event::DocumentStart(_)) {
            continue;
        }
        let mut places = BTreeMap::from([(String::new(), place_of(&span))]);
        let Some((event, span)) = reader.next()? else { break };
        places.insert(String::new(), place_of(&span));
        let value = reader.value(event, &span, "", &mut places, 0)?;
        if !value.is_null() {
            documents.push(Document { value, places });
        }
    }
    Ok(documents)
}

struct Reader<'t> {
    events: Parser<'t, saphyr_parser::StrInput<'t>>,
    anchors: BTreeMap<usize, Value>,
    /// How many values there are so far, those that aliases stand for included.
    values: usize,
}

/// How many values there are in a value.
fn values_in(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values_in).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(values_in).sum::<usize>(),
        _ => 1,
    }
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Malformed> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok(found)) => Ok(Some(found)),
            Some(Err(error)) => Err(Malformed {
                line: error.marker().line(),
                column: error.marker().col() + 1,
                message: error.info().to_owned(),
            }),
        }
    }

    fn value(
        &mut self,
        event: Event<'t>,
        span: &Span,
        path: &str,
        places: &mut BTreeMap<String, (usize, usize)>,
        depth: usize,
    ) -> Result<Value, Malformed> {
        let (line, column) = place_of(span);
        let malformed = |message: &str| Malformed { line, column, message: message.to_owned() };
        if depth > DEPTH_MAX {
            return Err(malformed("nested too deeply"));
        }
        self.values += 1;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style), anchor),
            Event::Alias(anchor) => {
                let Some(meant) = self.anchors.get(&anchor) else {
                    return Err(malformed("an alias within what it stands for"));
                };
                self.values += values_in(meant);
                if self.values > VALUES_MAX {
                    return Err(malformed("aliases stand for too many values"));
                }
                (meant.clone(), 0)
            }
            Event::SequenceStart(anchor, ..) | Event::MappingStart(anchor, ..) => {
                let is_list = matches!(event, Event::SequenceStart(..));
                let value = if is_list { self.list(path, places, depth)? } else { self.mapping(path, places, depth)? };
                (value, anchor)
            }
            _ => return Err(malformed("a value was expected")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn list(
        &mut self,
        path: &str,
        places: &mut BTreeMap<String, (usize, usize)>,
        depth: usize,
    ) -> Result<Value, Malformed> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            let path = format!("{path}[{}]", items.len());
            places.insert(path.clone(), place_of(&span));
            items.push(self.value(event, &span, &path, places, depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn mapping(
        &mut self,
        path: &str,
        places: &mut BTreeMap<String, (usize, usize)>,
        depth: usize,
    ) -> Result<Value, Malformed> {
        let mut members = Map::new();
        while let Some((event, span)) = self.next()? {
            let (line, column) = place_of(&span);
            let name = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(Malformed { line, column, message: "a name was expected".to_owned() }),
            };
            let Some((event, span)) = self.next()? else { break };
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            places.insert(path.clone(), (line, column));
            let value = self.value(event, &span, &path, places, depth + 1)?;
            if members.insert(name.clone(), value).is_some() {
                return Err(Malformed { line, column, message: format!("{name} is there twice") });
            }
        }
        Ok(Value::Object(members))
    }
}

/// A scalar in YAML's core schema.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return text.into();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => {
            let is_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+'));
            if !is_number {
                return text.into();
            }
            if let Ok(number) = text.parse::<i64>() {
                return number.into();
            }
            match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => text.into(),
            }
        }
    }
}

/// Writes a value as YAML.
pub(crate) fn write(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, &mut text);
    text
}

fn write_value(value: &Value, indent: usize, text: &mut String) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                text.push_str(&format!("{pad}{}:", plain(name)));
                write_below(value, indent, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                write_value(item, indent + 1, &mut inner);
                text.push_str(&format!("{pad}- {}", inner.trim_start()));
            }
        }
        other => text.push_str(&format!("{pad}{}\n", inline(other))),
    }
}

fn write_below(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            write_value(value, indent + 1, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            write_value(value, indent, text);
        }
        other => text.push_str(&format!(" {}\n", inline(other))),
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(word) => plain(word),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Whether YAML 1.1, which many tools still read, takes a word for a truth value.
fn is_truth(word: &str) -> bool {
    ["y", "n", "yes", "no", "on", "off"].contains(&word.to_lowercase().as_str())
}

/// A text as it is, if it is read back as that text; else in quotes.
fn plain(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_' | '-' | '(' | ')');
    let is_plain = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && word.chars().all(is_safe)
        && !is_truth(word)
        && scalar(word, ScalarStyle::Plain) == word;
    let is_address = word.starts_with(|c: char| c.is_ascii_digit())
        && word.contains(['.', '/'])
        && word.chars().all(is_safe)
        && scalar(word, ScalarStyle::Plain) == word;
    if is_plain || is_address { word.to_owned() } else { Value::from(word).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_fields() {
        let text =
            "---\nkind: IPPool\nspec:\n  cidr: 10.0.0.0/16\n  uses: [a, b]\n---\n{\"kind\": \"X\",\n \"n\": 26}\n";
        let documents = read(text).unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].value["spec"]["cidr"], "10.0.0.0/16");
        assert_eq!(documents[0].place("spec.cidr"), (4, 3));
        assert_eq!(documents[0].place("spec.uses[1]"), (5, 13));
        assert_eq!(documents[0].place("spec.nothing.below"), (3, 1));
        assert_eq!(documents[1].value["n"], 26);
        assert_eq!(documents[1].place("n"), (8, 2));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, line) in [("a: 1\na: 2\n", 2), ("a: [1\n", 2), ("x: \"\n", 2)] {
            let malformed = read(text).unwrap_err();
            assert!(malformed.line >= line - 1 && malformed.line <= line + 1, "{text:?}: {malformed:?}");
        }
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = level - 1;
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{below}"); 10].join(", ")));
        }
        assert!(read(&bomb).unwrap_err().message.contains("too many values"));
        assert!(read("a: &a [*a]\n").is_err());
        let deep = "[".repeat(1000);
        assert!(read(&deep).is_err());
    }

    #[test]
    fn json_of_other_tools_is_read() {
        let documents =
            read("\u{feff}{\n\t\"kind\": \"IPPool\",\n\t\"spec\": {\n\t\t\"blockSize\": 26\n\t}\n}\n").unwrap();
        assert_eq!(documents[0].value, serde_json::json!({"kind": "IPPool", "spec": {"blockSize": 26}}));
        assert_eq!(documents[0].place("spec.blockSize"), (4, 3));
        let aliased = read("a: &a {x: 1}\nb: *a\n").unwrap();
        assert_eq!(aliased[0].value["b"]["x"], 1);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let value = serde_json::json!({
            "a": "true", "b": true, "c": ["x y", "10.0.0.0/8", "26", {"d": [], "e": {}, "f": [[1, 2]]}],
            "g": {"h": null, "i": -3, "j": "2026-01-01T00:00:00Z", "k": "", "l": "#no", "m": "all()", "o": "no", "p": "1e3", "n": "é\n"},
        });
        let text = write(&value);
        let back = read(&text).unwrap_or_else(|error| panic!("{text}\n{error:?}"));
        assert_eq!(back[0].value, value, "{text}");
    }
}
