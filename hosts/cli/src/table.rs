//! Tables for people.

/// The width of each column: that of its widest cell.
fn widths(head: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// Rows under a head, each column as wide as its widest cell.
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths = widths(head, rows);
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        format!("{}\n", padded.join("   ").trim_end())
    };
    let mut text = line(head.to_vec());
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// A table in a frame, as calicoctl draws it.
pub(crate) fn framed(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths = widths(head, rows);
    let rule: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
    let line = |cells: Vec<&str>| {
        let padded: String =
            cells.iter().zip(&widths).map(|(cell, width)| format!("| {cell:<width$} ", width = *width)).collect();
        format!("{padded}|\n")
    };
    let mut text = rule.clone();
    text.push_str(&line(head.to_vec()));
    text.push_str(&rule);
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text.push_str(&rule);
    text
}
