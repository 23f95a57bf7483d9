//! Addresses with texts in them.

/// A text as it stands in a query or a form.
pub fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}

/// An address with these parameters; it may have others already.
pub fn with_query(address: &str, pairs: &[(&str, &str)]) -> String {
    let query: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_leave_their_parameter() {
        let pairs = [("scope", "openid profile"), ("a&b", "c=d#é")];
        let address = with_query("https://id.example/auth", &pairs);
        assert_eq!(address, "https://id.example/auth?scope=openid%20profile&a%26b=c%3Dd%23%C3%A9");
        assert_eq!(with_query("https://x/?y=1", &[("z", "2")]), "https://x/?y=1&z=2");
    }
}
