//! Random choices, the same for the same seed on every machine (SplitMix64).

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// From 0 up to, and without, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let at = self.below(among.len() as u64) as usize;
        among.get(at)
    }

    /// A length of time from `least` to `most`, milliseconds.
    pub fn millis(&mut self, least: i64, most: i64) -> i64 {
        least + self.below((most - least).max(0) as u64 + 1) as i64
    }
}
