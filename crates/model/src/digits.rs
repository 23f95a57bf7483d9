//! Numbers as text, without the machinery of `write!`: a listing has tens of thousands of them.

/// As many digits as the largest number has.
const DIGITS_MAX: usize = 20;

/// `7`, `1234`
pub fn push_number(out: &mut String, number: u64) {
    let mut digits = ['0'; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = char::from(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend(&digits[at..]);
}

/// `:07`: a mark, and the last two digits.
pub fn push_two(out: &mut String, mark: char, number: u64) {
    let digit = |number: u64| char::from(b'0' + (number % 10) as u8);
    out.extend([mark, digit(number / 10), digit(number)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_display_writes_them() {
        for number in [0, 7, 10, 99, 1234, u64::from(u32::MAX), u64::MAX] {
            let mut text = String::from("#");
            push_number(&mut text, number);
            assert_eq!(text, format!("#{number}"));
        }
        let mut text = String::new();
        push_two(&mut text, ':', 7);
        push_two(&mut text, '-', 59);
        assert_eq!(text, ":07-59");
    }
}
