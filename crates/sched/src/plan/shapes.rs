//! The shapes that a plan has worked out: few of those that a long queue has.

use crate::free::shape::Shape;
use crate::index::ShapeIndex;

pub struct PlanShapes<'a> {
    /// For each shape of the queue its position in `worked_out`, counted from one; zero while it is not worked out.
    positions: &'a mut Vec<u32>,
    worked_out: Vec<(ShapeIndex, Box<Shape<'a>>)>,
}

impl<'a> PlanShapes<'a> {
    /// For a queue with so many shapes, in the allocation of an earlier plan.
    pub fn new(positions: &'a mut Vec<u32>, count: usize) -> Self {
        positions.clear();
        positions.resize(count, 0);
        Self { positions, worked_out: Vec::new() }
    }

    pub fn get(&self, shape: ShapeIndex) -> Option<&Shape<'a>> {
        match self.positions[shape.at()] {
            0 => None,
            position => Some(&self.worked_out[position as usize - 1].1),
        }
    }

    pub fn get_or_insert_with(
        &mut self,
        shape: ShapeIndex,
        work_out: impl FnOnce() -> Shape<'a>,
    ) -> &mut Shape<'a> {
        let position = &mut self.positions[shape.at()];
        if *position == 0 {
            self.worked_out.push((shape, Box::new(work_out())));
            *position = self.worked_out.len() as u32;
        }
        &mut self.worked_out[*position as usize - 1].1
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ShapeIndex, &mut Shape<'a>)> {
        self.worked_out.iter_mut().map(|(at, shape)| (*at, &mut **shape))
    }
}
