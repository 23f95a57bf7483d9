//! Indices that must not be mixed up: with each other, or with the positions of nodes and partitions in the view.

/// A class of nodes with equal hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassIndex(pub u32);

/// A node's position among the candidates of its partition: the order in which nodes are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// A shape of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShapeIndex(pub u32);

/// A reservation's position in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationIndex(pub u32);

impl ClassIndex {
    pub fn at(self) -> usize {
        self.0 as usize
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self)
    }
}

impl Rank {
    pub fn at(self) -> usize {
        self.0 as usize
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self)
    }
}

impl ShapeIndex {
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl ReservationIndex {
    pub fn at(self) -> usize {
        self.0 as usize
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self)
    }
}
