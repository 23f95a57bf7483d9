//! How fast layers are unpacked beside `tar xzf`: `unpack_speed FOLDER LAYER.tar.gz…`, in an optimised build. Each is
//! done three times in turn, and the best of each counts.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use image::{Limits, unpack};

fn in_new_folder(parent: &Path, fill: impl FnOnce(&Path)) -> f64 {
    let folder = parent.join("unpacked");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder to write in");
    let start = Instant::now();
    fill(&folder);
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    seconds
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().expect("a folder to write in, then layers");
    let layers: Vec<_> = arguments.collect();
    let (mut ours, mut tars) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let ours_now = in_new_folder(Path::new(&parent), |folder| {
            let root = File::open(folder).expect("the folder");
            for layer in &layers {
                let file = File::open(layer).expect("the layer");
                let done = unpack(layer, file, None, root.as_fd(), &Limits::default());
                println!("{:?}", done.map_err(|e| e.to_string()).expect("a sound layer"));
            }
        });
        let tars_now = in_new_folder(Path::new(&parent), |folder| {
            for layer in &layers {
                let done = Command::new("tar").args(["xzf", layer, "-C"]).arg(folder).status();
                assert!(done.expect("tar").success());
            }
        });
        (ours, tars) = (ours.min(ours_now), tars.min(tars_now));
    }
    println!("image {ours:.2} s, tar {tars:.2} s, ratio {:.2}", ours / tars);
}
