//! Texts in small pages of the server that are no files of the web page.

/// The text as the content of an element, or the value of an attribute.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_does_not_leave_its_attribute() {
        let bad = "/proxy/jobs/1/80/?a=1&b=\"><script>'";
        assert_eq!(escaped(bad), "/proxy/jobs/1/80/?a=1&amp;b=&quot;&gt;&lt;script&gt;&#39;");
    }
}
