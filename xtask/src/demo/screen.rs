//! What the demo puts on the screen: headings, text, tables, drawings. It knows nothing of addresses but their cells.
//!
//! Colour only helps: each mark is a character of its own, so that nothing is lost without it.

use std::io::{self, IsTerminal as _, Write as _};

/// The width that all output keeps to, in characters: that of the smallest usual terminal.
pub(super) const COLUMNS: usize = 80;

/// Cells in one line of a drawing.
pub(super) const CELLS_A_LINE: usize = 16;

/// What a drawing tells of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Nobody holds it.
    Free,
    /// A container holds it.
    Held,
    /// A container holds it, and it was the last to be given out.
    Last,
    /// It was the last to be given out, and is free again.
    LastFree,
    /// The gateway, which is never given out.
    Gateway,
    /// The first or last address of an IPv4 subnet, which is never given out.
    Edge,
}

impl Cell {
    const fn mark(self) -> char {
        match self {
            Self::Free => '·',
            Self::Held => '●',
            Self::Last => '◆',
            Self::LastFree => '◇',
            Self::Gateway => 'G',
            Self::Edge => '×',
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Last => "held, given out last",
            Self::LastFree => "given out last, free again",
            Self::Gateway => "gateway",
            Self::Edge => "not usable",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Free | Self::Edge => Style::Faint,
            Self::Held => Style::Green,
            Self::Last | Self::LastFree => Style::Magenta,
            Self::Gateway => Style::Cyan,
        }
    }
}

/// How a piece of text looks, where there is colour: only what reads well on dark and on light ground.
#[derive(Clone, Copy, Debug)]
pub(super) enum Style {
    Bold,
    Faint,
    Green,
    Magenta,
    Cyan,
    Red,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Faint => "2",
            Self::Green => "32",
            Self::Magenta => "35",
            Self::Cyan => "36",
            Self::Red => "31",
        }
    }
}

/// Standard output.
pub(super) struct Screen {
    has_colour: bool,
    section: usize,
}

impl Screen {
    /// Colour only on a terminal, and only if nobody has said no (<https://no-color.org>).
    pub(super) fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { has_colour: io::stdout().is_terminal() && !refused, section: 0 }
    }

    /// Text in a style.
    pub(super) fn styled(&self, style: Style, text: &str) -> String {
        if self.has_colour { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_owned() }
    }

    /// One line. A reader that has gone (`| head`) is no failure of the demo.
    pub(super) fn line(&self, text: &str) {
        let _ = writeln!(io::stdout(), "{text}");
    }

    /// The name of the whole.
    pub(super) fn title(&self, text: &str) {
        self.line(&self.styled(Style::Bold, text));
    }

    /// Starts the next numbered section.
    pub(super) fn section(&mut self, title: &str) {
        self.section += 1;
        let title = format!(" {} {title} ", self.section);
        let rule = "─".repeat(COLUMNS.saturating_sub(title.chars().count() + 2));
        self.line("");
        self.line(&format!(
            "{}{}{}",
            self.styled(Style::Faint, "──"),
            self.styled(Style::Bold, &title),
            self.styled(Style::Faint, &rule)
        ));
    }

    /// A paragraph, broken at words.
    pub(super) fn text(&self, text: &str) {
        for line in wrapped(text, COLUMNS) {
            self.line(&line);
        }
    }

    /// What was found right, in one paragraph with a mark before it.
    pub(super) fn good(&self, text: &str) {
        self.marked(Style::Green, '✓', text);
    }

    /// What could not be shown, and why.
    pub(super) fn left_out(&self, text: &str) {
        self.marked(Style::Magenta, '-', &format!("Left out: {text}"));
    }

    fn marked(&self, style: Style, mark: char, text: &str) {
        for (index, line) in wrapped(text, COLUMNS - 4).iter().enumerate() {
            let mark = if index == 0 { self.styled(style, &mark.to_string()) } else { " ".to_owned() };
            self.line(&format!("  {mark} {line}"));
        }
    }

    /// Text as it is, indented and under a caption.
    pub(super) fn verbatim(&self, caption: &str, text: &str) {
        self.line(&format!("  {}", self.styled(Style::Cyan, caption)));
        for line in text.lines() {
            self.line(&format!("    {line}"));
        }
    }

    /// A name and its text, which is broken at words beside the name.
    pub(super) fn field(&self, name: &str, name_columns: usize, text: &str, style: Option<Style>) {
        for (index, line) in wrapped(text, COLUMNS - name_columns - 5).iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let line = style.map_or_else(|| line.clone(), |style| self.styled(style, line));
            self.line(&format!("    {} {line}", self.styled(Style::Bold, &format!("{name:<name_columns$}"))));
        }
    }

    /// Rows under a heading; columns are as wide as their widest cell.
    pub(super) fn table(&self, heading: &[&str], rows: &[Vec<String>]) {
        let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let lay = |cells: &mut dyn Iterator<Item = &str>| {
            let line: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("    {}", line.join("   ")).trim_end().to_owned()
        };
        self.line(&self.styled(Style::Bold, &lay(&mut heading.iter().copied())));
        for row in rows {
            self.line(&lay(&mut row.iter().map(String::as_str)));
        }
    }

    /// Lines of at most [`CELLS_A_LINE`] cells, one cell for each address, each after the name of its first address.
    pub(super) fn drawing(&self, lines: &[(String, Vec<Cell>)]) {
        let width = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        let numbers: String = (0..CELLS_A_LINE).map(|number| format!("{number:>3}")).collect();
        self.line(&self.styled(Style::Faint, &format!("    {:width$} {numbers}", "")));
        for (label, cells) in lines {
            let marks: String =
                cells.iter().map(|cell| format!("  {}", self.styled(cell.style(), &cell.mark().to_string()))).collect();
            self.line(&format!("    {label:<width$} {marks}"));
        }
        let all: Vec<Cell> = lines.iter().flat_map(|(_, cells)| cells.iter().copied()).collect();
        self.legend(&all);
    }

    /// What the marks of these cells mean.
    fn legend(&self, cells: &[Cell]) {
        let all = [Cell::Free, Cell::Held, Cell::Last, Cell::LastFree, Cell::Gateway, Cell::Edge];
        let used: Vec<String> = all
            .into_iter()
            .filter(|kind| cells.contains(kind))
            .map(|kind| format!("{} {}", self.styled(kind.style(), &kind.mark().to_string()), kind.meaning()))
            .collect();
        self.line(&format!("    {}", used.join("   ")));
    }
}

/// A text broken at words into lines of at most `columns` characters; a longer word stays whole.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn text_breaks_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("extraordinary a", 4), ["extraordinary", "a"]);
        assert_eq!(wrapped("a\n\nb", 9), ["a", "", "b"]);
    }
}
