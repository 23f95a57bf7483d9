//! For which machines an image is, in the words of the OCI image index.

use std::fmt;

use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// The machine that this program was built for.
    pub fn here() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", Some("v7")),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            "x86" => ("386", None),
            other => (other, None),
        };
        Self {
            os: "linux".into(),
            architecture: architecture.into(),
            variant: variant.map(str::to_owned),
        }
    }

    /// How well an image's platform suits this machine, best first; `None` when it does not run here.
    pub fn rank(&self, image: &Self) -> Option<u32> {
        let level = |p: &Self| {
            p.variant.as_deref().and_then(|v| v.trim_start_matches('v').parse::<u32>().ok())
        };
        let os_fits = image.os == self.os || image.os.is_empty();
        if !os_fits || image.architecture != self.architecture {
            return None;
        }
        // amd64's variants are levels of instructions, which a list states beside the plain image.
        let base = match self.architecture.as_str() {
            "amd64" => 1,
            "arm64" => 8,
            _ => 0,
        };
        let (here, there) = (level(self).unwrap_or(base), level(image).unwrap_or(base));
        let unknown = base == 0 && level(self).is_none();
        (unknown || there <= here).then(|| here.saturating_sub(there))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant
            .as_ref()
            .filter(|v| !v.is_empty())
            .map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}
