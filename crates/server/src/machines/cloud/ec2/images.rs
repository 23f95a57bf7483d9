//! The image that a machine is made from: the one that the site names by its id, or the newest of a name.

use super::api::{Form, items, parse, value};
use super::run_instances::Image;
use super::{Ec2Source, FACTS_LIFE};
use crate::machines::source::SourceError;
use std::time::Instant;

impl Ec2Source {
    /// What EC2 tells of the image of a region's machines with GPUs, or of those without.
    pub(super) fn image(&self, region: &str, has_gpus: bool) -> Result<Image, SourceError> {
        let id = self.cloud.image(region);
        let (what, form) = match (self.cloud.os_images.of(has_gpus), id) {
            (Some(named), _) => {
                let form = Form::default()
                    .with_list("Owner", [named.owner.as_str()])
                    .with_filter(1, "name", [named.name.as_str()])
                    .with_filter(2, "state", ["available"]);
                (format!("image {} of {}", named.name, named.owner), form)
            }
            (None, Some(id)) => (format!("image {id}"), Form::default().with_list("ImageId", [id])),
            (None, None) => return Err(SourceError::refused(format!("no image for {region}"))),
        };
        let key = (region.to_owned(), what);
        if let Some((at, image)) = self.facts().images.get(&key)
            && at.elapsed() < FACTS_LIFE
        {
            return Ok(image.clone());
        }
        let text = self.api.call(region, "DescribeImages", &form)?;
        let document = parse("DescribeImages", &text)?;
        // A name that is built anew has several images: the newest is meant.
        let found = items(document.root_element(), "imagesSet").into_iter();
        let found = found.max_by_key(|item| value(*item, "creationDate").unwrap_or_default());
        let image = found.and_then(|item| {
            Some(Image {
                id: value(item, "imageId").or(id)?.to_owned(),
                architecture: value(item, "architecture").unwrap_or("x86_64").to_owned(),
                root_device: value(item, "rootDeviceName").unwrap_or("/dev/sda1").to_owned(),
            })
        });
        let missing = || SourceError::refused(format!("{}: there is none in {region}", key.1));
        let image = image.ok_or_else(missing)?;
        self.facts().images.insert(key, (Instant::now(), image.clone()));
        Ok(image)
    }
}
