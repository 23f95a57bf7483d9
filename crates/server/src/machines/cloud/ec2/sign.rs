//! Signatures of AWS, version 4, for the one form of request that is made here: a POST of a form to `/`.

use super::super::secret::SecretText;
use model::time::Timestamp;
use ring::{digest, hmac};

/// A key of an account or of a role, with the session's token where it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessKey {
    pub id: String,
    pub secret: SecretText,
    pub session: Option<SecretText>,
}

/// What a signature is good for.
pub struct Scope<'a> {
    pub region: &'a str,
    pub service: &'a str,
    /// `20150830T123600Z`
    pub time: &'a str,
}

impl Scope<'_> {
    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day(), self.region, self.service)
    }

    fn day(&self) -> &str {
        self.time.get(..8).unwrap_or(self.time)
    }
}

/// A time as AWS writes it.
pub fn amz_time(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_second(at.secs()).unwrap_or_default();
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// The value of `Authorization`. `headers`: all that are signed, their names in small letters, in the order of the alphabet.
pub fn authorization(
    key: &AccessKey,
    scope: &Scope<'_>,
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let request = format!("POST\n/\n\n{lines}\n{names}\n{}", sha256(body));
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{}\n{}\n{}",
        scope.time,
        scope.text(),
        sha256(request.as_bytes())
    );
    let signature = hex(mac(&signing_key(key, scope), to_sign.as_bytes()).as_ref());
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={names}, Signature={signature}",
        key.id,
        scope.text()
    )
}

fn signing_key(key: &AccessKey, scope: &Scope<'_>) -> hmac::Tag {
    let first = SecretText::new(format!("AWS4{}", key.secret.expose()));
    let parts = [scope.region, scope.service, "aws4_request"];
    let day = mac_of(first.expose().as_bytes(), scope.day().as_bytes());
    parts.iter().fold(day, |of, part| mac(&of, part.as_bytes()))
}

fn mac_of(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

fn mac(key: &hmac::Tag, text: &[u8]) -> hmac::Tag {
    mac_of(key.as_ref(), text)
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value of a form: all but letters, digits and `-_.~` is escaped.
pub fn encode(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let escape = |byte: u8| match Some(byte).filter(is_plain) {
        Some(plain) => char::from(plain).to_string(),
        None => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "20150830T123600Z";
    const HOST: (&str, &str) = ("host", "example.amazonaws.com");
    const DATE: (&str, &str) = ("x-amz-date", TIME);

    /// The token of AWS's own test vectors.
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    /// AWS's published vectors: post-vanilla, post-x-www-form-urlencoded and post-sts-header-before.
    #[test]
    fn signatures_are_those_of_the_published_vectors() {
        let key = AccessKey {
            id: "AKIDEXAMPLE".into(),
            secret: SecretText::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session: None,
        };
        let scope = Scope { region: "us-east-1", service: "service", time: TIME };
        let form = ("content-type", "application/x-www-form-urlencoded");
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a str);
        let table: [Row<'_>; 3] = [
            (
                &[HOST, DATE],
                "",
                "host;x-amz-date",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                &[form, HOST, DATE],
                "Param1=value1",
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                &[HOST, DATE, ("x-amz-security-token", TOKEN)],
                "",
                "host;x-amz-date;x-amz-security-token",
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ];
        for (headers, body, names, signature) in table {
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, Signature={signature}"
            );
            assert_eq!(authorization(&key, &scope, headers, body.as_bytes()), expected);
        }
    }

    #[test]
    fn times_and_values_are_written_as_aws_reads_them() {
        assert_eq!(amz_time(Timestamp::from_secs(1_440_938_160)), TIME);
        assert_eq!(encode("a b/ä~_-."), "a%20b%2F%C3%A4~_-.");
    }
}
