//! Tables for people: columns that line up.

/// Two columns: a name and its value.
pub(super) fn print_pairs(rows: &[(&str, String)]) {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in rows {
        println!("{name:<width$}  {value}");
    }
}

/// A count with thin groups: `1 234 567`.
pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that reads best.
pub(super) fn bytes(count: usize) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return format!("{value:.3} {unit}").replace(".000", "");
        }
        value /= 1000.0;
    }
    format!("{value:.3} TB")
}
