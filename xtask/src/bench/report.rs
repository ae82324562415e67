//! Tables, and their place in docs/performance.md.

use crate::steps;
use anyhow::{Context as _, Result};

/// Prints what is measured as soon as it is known, and keeps it.
#[derive(Default)]
pub(super) struct Report {
    lines: Vec<String>,
    widths: Vec<usize>,
}

impl Report {
    /// A line of text.
    pub(super) fn line(&mut self, text: &str) {
        println!("{text}");
        self.lines.push(text.to_owned());
    }

    /// Begins a table; columns are as wide as their headings.
    pub(super) fn table(&mut self, heading: &[&str]) {
        self.line("");
        self.widths = heading.iter().map(|cell| cell.chars().count()).collect();
        self.row(&heading.iter().map(ToString::to_string).collect::<Vec<_>>());
        let rules: Vec<String> = self.widths.iter().map(|width| "-".repeat(*width)).collect();
        self.row(&rules);
    }

    /// A row of the table.
    pub(super) fn row(&mut self, cells: &[String]) {
        let cells: Vec<String> =
            cells.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        self.line(&format!("| {} |", cells.join(" | ")));
    }

    /// Puts all into docs/performance.md, between the marks of this name.
    ///
    /// # Errors
    /// If the file or the marks in it are missing.
    pub(super) fn write(&self, name: &str) -> Result<()> {
        let path = steps::root().join("docs/performance.md");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let marks = [format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->")];
        let parts = text.split_once(&marks[0]).and_then(|(before, rest)| Some((before, rest.split_once(&marks[1])?.1)));
        let (before, after) =
            parts.with_context(|| format!("{} has not {} and {}", path.display(), marks[0], marks[1]))?;
        let body = self.lines.join("\n");
        std::fs::write(&path, format!("{before}{}\n{}\n\n{}{after}", marks[0], body.trim(), marks[1]))?;
        println!("\nwritten into {}", path.display());
        Ok(())
    }
}
