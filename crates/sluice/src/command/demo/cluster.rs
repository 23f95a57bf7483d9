//! The cluster of the demo, and the commands run on it: a scratch one in a folder of its own, or the lab, which has a place
//! where later steps find it.

use crate::client::default_state_dir;
use crate::command::verb::{VerbError, VerbResult};
use ::agent::trusted_dir::TrustedDir;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

/// How long a step waits for an expected state.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);

/// Two nodes of eight GPUs. Without `File=` GPUs are only counted.
const SLURM_CONF: &str = "\
ClusterName=demo
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
DefMemPerCPU=16
KillWait=1
NodeName=gpu[1-2] CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=2000 Gres=gpu:h100:8
PartitionName=gpu Nodes=gpu[1-2] Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00 State=UP
";

pub struct DemoCluster {
    /// Where the evidence goes, and where the commands run.
    out: TrustedDir,
    state: PathBuf,
    program: PathBuf,
    /// The folder that is removed at the end; the lab stays.
    scratch: Option<TrustedDir>,
}

/// A folder beside the default state folder, so that each user has one: `sluice-lab`.
fn beside_state(of: &str) -> PathBuf {
    let state = default_state_dir();
    let name = format!("{}-{of}", state.file_name().unwrap_or_default().to_string_lossy());
    state.with_file_name(name)
}

/// The lab's folder.
fn lab_folder() -> PathBuf {
    std::env::var_os("SLUICE_LAB").map_or_else(|| beside_state("lab"), PathBuf::from)
}

impl DemoCluster {
    /// A cluster that nobody finds again. Its evidence is kept beside the state folder, where the next one's takes its place.
    pub fn scratch(out: Option<PathBuf>) -> Result<Self, VerbError> {
        let out = out.unwrap_or_else(|| beside_state("demo"));
        // Nobody else can know the name or look inside: root must not meet there what another user has planted.
        let temporary = std::env::temp_dir();
        let base =
            TrustedDir::make_temporary("sluice-demo-").map_err(VerbError::file(temporary))?;
        match Self::start(&base, Some(out)) {
            Ok(cluster) => Ok(Self { scratch: Some(base), ..cluster }),
            Err(error) => {
                // The logs of a cluster that did not come up say why, and `sluice down` ends what is left of it. The first error is
                // the one to tell.
                if !base.path().join("state").exists() {
                    let _ = base.remove();
                }
                Err(error)
            }
        }
    }

    /// The lab: as it runs, or started.
    pub fn lab(out: Option<PathBuf>) -> Result<Self, VerbError> {
        let folder = lab_folder();
        let base = TrustedDir::make(&folder).map_err(VerbError::file(&folder))?;
        // What its jobs write is the lab's user's.
        base.set_mode(0o755).map_err(VerbError::file(&folder))?;
        let cluster = Self::at(&base, out.clone())?;
        if cluster.quietly(&["scontrol", "ping"]).is_ok() {
            Ok(cluster)
        } else {
            Self::start(&base, out)
        }
    }

    /// Stops the lab and removes it.
    pub fn lab_down() -> VerbResult {
        let folder = lab_folder();
        if !folder.exists() {
            println!("there is no lab in {}", folder.display());
            return Ok(ExitCode::SUCCESS);
        }
        let base = TrustedDir::open(&folder).map_err(VerbError::file(&folder))?;
        // Whatever else SLUICE_LAB names is not removed.
        let conf = std::fs::read(base.path().join("conf/slurm.conf"));
        if conf.ok().as_deref() != Some(SLURM_CONF.as_bytes()) {
            let text =
                format!("{} is no lab of `sluice demo`: nothing is removed", folder.display());
            return Err(VerbError::Message(text));
        }
        let cluster = Self::at(&base, None)?;
        if cluster.state.exists() {
            cluster.stop()?;
        }
        base.remove().map_err(VerbError::file(&folder))?;
        println!("the lab is down, and {} is removed", folder.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Says how the lab is used from a shell.
    pub fn tell_lab(&self) {
        println!("\nThe lab runs on. To look around:");
        println!("  export SLUICE_STATE={}", self.state.display());
        println!("  sinfo; squeue; sluice top");
        println!(
            "`sluice demo gpu|refusal|limit|array|drill` plays a scene, `sluice demo evidence DIR` writes"
        );
        println!("down what it says now, `sluice demo down` ends it.");
    }

    fn at(base: &TrustedDir, out: Option<PathBuf>) -> Result<Self, VerbError> {
        let out = out.unwrap_or_else(|| base.path().join("evidence"));
        let out = TrustedDir::make(&out).map_err(VerbError::file(&out))?;
        let program = std::env::current_exe().map_err(VerbError::file("sluice"))?;
        Ok(Self { out, state: base.path().join("state"), program, scratch: None })
    }

    fn start(base: &TrustedDir, out: Option<PathBuf>) -> Result<Self, VerbError> {
        let cluster = Self::at(base, out)?;
        let conf = base.path().join("conf");
        let conf = TrustedDir::make(&conf).map_err(VerbError::file(&conf))?;
        conf.replace("slurm.conf", 0o644, SLURM_CONF.as_bytes())
            .map_err(VerbError::file(conf.path()))?;
        println!("A scratch cluster: gpu1 and gpu2, eight GPUs each. They are only declared:");
        println!("nothing here has a GPU, and everything else is real.");
        let mut up = Command::new(&cluster.program);
        up.args(["up", "--detach"]);
        // A lab that was started before has its ports.
        if !cluster.state.join("ports.json").exists() {
            up.args(["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
        }
        let up = up
            .arg("--config")
            .arg(conf.path())
            .arg("--state")
            .arg(&cluster.state)
            .output()
            .map_err(VerbError::file("sluice up"))?;
        if !up.status.success() {
            let text = String::from_utf8_lossy(&up.stderr).trim().to_string();
            return Err(VerbError::Message(format!("the demo's cluster did not come up: {text}")));
        }
        print!("{}", String::from_utf8_lossy(&up.stdout));
        Ok(cluster)
    }

    fn output(&self, line: &[&str]) -> Result<Output, String> {
        Command::new(&self.program)
            .args(line)
            .current_dir(self.out.path())
            .env("SLUICE_STATE", &self.state)
            .env_remove("SLUICE_SERVER")
            .output()
            .map_err(|e| format!("{}: {e}", line.join(" ")))
    }

    /// Runs a command that must succeed, shows it, and returns its output.
    pub fn run(&self, line: &[&str]) -> Result<String, String> {
        let output = self.output(line)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("$ {}", shown(line));
        print!("{text}");
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed: {}", shown(line), error.trim()));
        }
        Ok(text)
    }

    /// As `run`, without showing it.
    pub fn quietly(&self, line: &[&str]) -> Result<String, String> {
        let output = self.output(line)?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("{} failed: {}", shown(line), error.trim()))
        }
    }

    /// Runs a command that must be refused, and returns its errors.
    pub fn refused(&self, line: &[&str]) -> Result<String, String> {
        let output = self.output(line)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("$ {}", shown(line));
        print!("{text}");
        if output.status.success() {
            Err(format!("{} was not refused", shown(line)))
        } else {
            Ok(text)
        }
    }

    /// Repeats a command until its output is as expected.
    pub fn until(
        &self,
        what: &str,
        line: &[&str],
        good: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let text = self.quietly(line)?;
            if good(&text) {
                return Ok(text);
            }
            if Instant::now() > deadline {
                return Err(format!("{what}: {} still says\n{text}", shown(line)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Keeps a command's output as evidence.
    pub fn keep(&self, file: &str, note: &str, lines: &[&[&str]]) -> Result<(), String> {
        let mut text = format!("# {note}\n# The GPUs are declared, not real.\n");
        for line in lines {
            text += &format!("$ {}\n{}\n", shown(line), self.quietly(line)?);
        }
        let written = self.out.replace(file, 0o644, text.as_bytes());
        written.map_err(|e| format!("{}: {e}", self.evidence().join(file).display()))
    }

    pub fn evidence(&self) -> &Path {
        self.out.path()
    }

    /// Stops a scratch cluster and removes its folder; the evidence stays.
    pub fn remove(&mut self) -> Result<(), VerbError> {
        self.stop()?;
        let Some(scratch) = self.scratch.take() else { return Ok(()) };
        let path = scratch.path().to_owned();
        scratch.remove().map_err(VerbError::file(path))
    }

    fn stop(&self) -> Result<(), VerbError> {
        let down = Command::new(&self.program)
            .args(["down", "--jobs", "--state"])
            .arg(&self.state)
            .output()
            .map_err(VerbError::file("sluice down"))?;
        if !down.status.success() {
            let text = String::from_utf8_lossy(&down.stderr).trim().to_string();
            return Err(VerbError::Message(format!("the demo's cluster does not go down: {text}")));
        }
        Ok(())
    }
}

fn shown(line: &[&str]) -> String {
    let quoted = line.iter().map(|word| {
        if word.contains([' ', '|', ';']) { format!("'{word}'") } else { word.to_string() }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
