//! Random choices by a seed: the same seed makes the same choices.

/// SplitMix64.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in this variable of the environment, or else `default`; it is printed, so that a failure can be repeated.
    pub fn seed_from(variable: &str, default: impl FnOnce() -> u64) -> u64 {
        let given = std::env::var(variable).ok();
        let number = |text: String| {
            text.parse().unwrap_or_else(|_| panic!("{variable}={text}: expected a number"))
        };
        let seed = given.map_or_else(default, number);
        println!("run again with {variable}={seed}");
        seed
    }

    /// A seed of the clock.
    pub fn seed_of_the_clock() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in so many.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
