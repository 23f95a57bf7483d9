//! NVML, NVIDIA's management library: the functions needed here, found by name in the loaded library. A function that an
//! older library does not have is a value that is not known.

use model::amount::Bytes;
use model::gpu::ComputeCapability;
use model::gpu_health::GpuReading;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::time::Duration;

/// More GPUs than any machine has.
const GPUS_MAX: u32 = 256;
const NVLINKS: c_uint = 18;
/// Replays, recoveries and CRC errors of data and flow control.
const NVLINK_COUNTERS: [c_uint; 4] = [0, 1, 2, 3];

const SUCCESS: c_int = 0;
const GPU_IS_LOST: c_int = 15;
const CORRECTED: c_uint = 0;
const UNCORRECTED: c_uint = 1;
/// Counters since the driver was loaded.
const VOLATILE: c_uint = 0;
const TEMPERATURE_OF_GPU: c_uint = 0;
const XID_EVENT: c_ulonglong = 8;

type Device = *mut c_void;
type Get<T> = unsafe extern "C" fn(Device, *mut T) -> c_int;
type GetText = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int;
type GetBy<T> = unsafe extern "C" fn(Device, c_uint, *mut T) -> c_int;
type GetByTwo = unsafe extern "C" fn(Device, c_uint, c_uint, *mut c_ulonglong) -> c_int;
type GetTwo = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;
type GetRows =
    unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int;

#[repr(C)]
#[derive(Clone, Copy)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    numbers: [c_uint; 5],
    bus_id: [c_char; 32],
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Utilisation {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct EventData {
    device: Device,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The loaded library.
struct Library(*mut c_void);

impl Library {
    fn open(path: &str) -> Result<Library, String> {
        let name = CString::new(path).map_err(|_| format!("{path:?}: not a path"))?;
        // SAFETY: the name is a C string; the library's constructors run in the monitor's process, which has nothing else.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(format!("{path} cannot be loaded")) } else { Ok(Library(handle)) }
    }

    /// A function by its name.
    ///
    /// # Safety
    /// `F` is the type of a C function with the signature that the library's documentation gives it.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is of a library that is never closed.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        // SAFETY: as the caller promises; a function's address has the size of a pointer.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }
}

/// Declares the library's functions with their names and signatures.
macro_rules! functions {
    ($($field:ident: $kind:ty = $name:literal;)+) => {
        #[derive(Clone, Copy)]
        struct Functions { $($field: Option<$kind>,)+ }

        impl Functions {
            fn of(library: &Library) -> Functions {
                // SAFETY: the signatures are those of NVML's documentation.
                unsafe { Functions { $($field: library.function::<$kind>($name),)+ } }
            }
        }
    };
}

functions! {
    init: unsafe extern "C" fn() -> c_int = c"nvmlInit_v2";
    error_text: unsafe extern "C" fn(c_int) -> *const c_char = c"nvmlErrorString";
    count: unsafe extern "C" fn(*mut c_uint) -> c_int = c"nvmlDeviceGetCount_v2";
    by_index: unsafe extern "C" fn(c_uint, *mut Device) -> c_int = c"nvmlDeviceGetHandleByIndex_v2";
    name: GetText = c"nvmlDeviceGetName";
    uuid: GetText = c"nvmlDeviceGetUUID";
    minor: Get<c_uint> = c"nvmlDeviceGetMinorNumber";
    pci: Get<PciInfo> = c"nvmlDeviceGetPciInfo_v3";
    memory: Get<Memory> = c"nvmlDeviceGetMemoryInfo";
    utilisation: Get<Utilisation> = c"nvmlDeviceGetUtilizationRates";
    power: Get<c_uint> = c"nvmlDeviceGetPowerUsage";
    energy: Get<c_ulonglong> = c"nvmlDeviceGetTotalEnergyConsumption";
    temperature: GetBy<c_uint> = c"nvmlDeviceGetTemperature";
    ecc: GetByTwo = c"nvmlDeviceGetTotalEccErrors";
    rows: GetRows = c"nvmlDeviceGetRemappedRows";
    replays: Get<c_uint> = c"nvmlDeviceGetPcieReplayCounter";
    mig: GetTwo = c"nvmlDeviceGetMigMode";
    capability: GetTwo = c"nvmlDeviceGetCudaComputeCapability";
    link_state: GetBy<c_uint> = c"nvmlDeviceGetNvLinkState";
    link_errors: GetByTwo = c"nvmlDeviceGetNvLinkErrorCounter";
    link_remote: GetBy<PciInfo> = c"nvmlDeviceGetNvLinkRemotePciInfo_v2";
    event_set: unsafe extern "C" fn(*mut *mut c_void) -> c_int = c"nvmlEventSetCreate";
    register: unsafe extern "C" fn(Device, c_ulonglong, *mut c_void) -> c_int = c"nvmlDeviceRegisterEvents";
    event_wait: unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> c_int = c"nvmlEventSetWait_v2";
}

/// The library, ready to be asked, in the process that only asks it.
pub(super) struct Nvml {
    functions: Functions,
    /// Where errors of the driver are announced; `None` if they cannot be.
    events: Option<*mut c_void>,
    listened: Vec<Device>,
    /// The last error of the driver, by the device's address.
    xids: HashMap<usize, u64>,
}

impl Nvml {
    pub fn load(path: &str) -> Result<Nvml, String> {
        let functions = Functions::of(&Library::open(path)?);
        let init = functions.init.ok_or_else(|| format!("{path} is not NVML"))?;
        // SAFETY: it takes nothing.
        let status = unsafe { init() };
        let mut nvml = Nvml { functions, events: None, listened: Vec::new(), xids: HashMap::new() };
        if status != SUCCESS {
            return Err(format!("NVML does not start: {}", nvml.error(status)));
        }
        nvml.events = nvml.functions.event_set.and_then(|make| {
            let mut set = std::ptr::null_mut();
            // SAFETY: the set is written to a live pointer.
            (unsafe { make(&mut set) } == SUCCESS).then_some(set)
        });
        Ok(nvml)
    }

    fn error(&self, status: c_int) -> String {
        let Some(text) = self.functions.error_text else { return format!("error {status}") };
        // SAFETY: it returns a text of the library's own for every number.
        let text = unsafe { text(status) };
        if text.is_null() {
            return format!("error {status}");
        }
        // SAFETY: not null, and a C string that lives as long as the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Reads every GPU. One that cannot be read is reported as lost.
    pub fn readings(&mut self) -> Vec<GpuReading> {
        let count = self.functions.count.and_then(|count| {
            // SAFETY: the count is written to a live value.
            value(|out| unsafe { count(out) }).ok()
        });
        let mut readings = Vec::new();
        let mut devices = Vec::new();
        for index in 0..count.unwrap_or(0).min(GPUS_MAX) {
            let (reading, device) = self.reading(index);
            readings.push(reading);
            devices.push(device);
        }
        self.set_links(&mut readings, &devices);
        readings
    }

    fn reading(&mut self, index: u32) -> (GpuReading, Option<Device>) {
        let mut reading = GpuReading { index, ..GpuReading::default() };
        let Some(by_index) = self.functions.by_index else { return (reading, None) };
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the device is written to a live pointer.
        let status = unsafe { by_index(index, &mut device) };
        if status != SUCCESS {
            reading.lost = Some(self.error(status));
            return (reading, None);
        }
        self.listen(device);
        let mut asked = Asked { device, lost: None };
        let of = self.functions;
        reading.model = asked.text(of.name);
        reading.uuid = asked.text(of.uuid);
        reading.minor = asked.get(of.minor);
        reading.pci = asked.get(of.pci).map(|pci| text_of(&pci.bus_id)).unwrap_or_default();
        let memory = asked.get(of.memory).unwrap_or_default();
        (reading.memory, reading.memory_used) = (Bytes(memory.total), Bytes(memory.used));
        reading.busy_percent = asked.get(of.utilisation).map(|used| u64::from(used.gpu));
        reading.power_mw = asked.get(of.power).map(u64::from);
        reading.energy_mj = asked.get(of.energy);
        reading.temperature_c = asked.get_by(of.temperature, TEMPERATURE_OF_GPU).map(u64::from);
        reading.ecc_corrected = asked.get_by_two(of.ecc, CORRECTED, VOLATILE);
        reading.ecc_uncorrected = asked.get_by_two(of.ecc, UNCORRECTED, VOLATILE);
        if let Some([corrected, uncorrected, pending, failed]) = asked.rows(of.rows) {
            reading.rows_corrected = Some(corrected);
            reading.rows_uncorrected = Some(uncorrected);
            reading.remap_pending = Some(pending);
            reading.remap_failed = Some(failed);
        }
        reading.pcie_replays = asked.get(of.replays).map(u64::from);
        reading.mig = asked.get_two(of.mig).is_some_and(|(current, _)| current == 1);
        reading.compute_capability = asked.compute_capability(of.capability);
        reading.nvlink_errors = asked.link_errors(&of);
        reading.xid = self.xids.get(&device.addr()).copied();
        reading.lost = asked.lost.map(|status| self.error(status));
        (reading, Some(device))
    }

    /// Counts the links between GPUs. A link to a switch leads to every GPU that has one too.
    fn set_links(&self, readings: &mut [GpuReading], devices: &[Option<Device>]) {
        let peers: Vec<Vec<String>> = devices
            .iter()
            .map(|device| device.map(|device| self.remotes(device)).unwrap_or_default())
            .collect();
        if peers.iter().all(Vec::is_empty) {
            return;
        }
        let addresses: Vec<String> = readings.iter().map(|gpu| gpu.pci.clone()).collect();
        let switched: Vec<usize> = peers
            .iter()
            .map(|remotes| remotes.iter().filter(|remote| !addresses.contains(remote)).count())
            .collect();
        for (at, reading) in readings.iter_mut().enumerate() {
            let links = |other: usize| {
                let direct = peers[at].iter().filter(|remote| **remote == addresses[other]).count();
                (direct + switched[at].min(switched[other])) as i32
            };
            let all = 0..addresses.len();
            reading.links = all.map(|other| if other == at { -1 } else { links(other) }).collect();
        }
    }

    /// The PCI addresses at the other ends of a GPU's links.
    fn remotes(&self, device: Device) -> Vec<String> {
        let mut asked = Asked { device, lost: None };
        let of = &self.functions;
        let active = |asked: &mut Asked, link| asked.get_by(of.link_state, link) == Some(1);
        let links: Vec<c_uint> = (0..NVLINKS).filter(|link| active(&mut asked, *link)).collect();
        let remote = |link| Some(text_of(&asked.get_by(of.link_remote, link)?.bus_id));
        links.into_iter().filter_map(remote).collect()
    }

    /// Has the driver's critical errors of a device announced.
    fn listen(&mut self, device: Device) {
        let (Some(register), Some(events)) = (self.functions.register, self.events) else { return };
        if !self.listened.contains(&device) {
            // SAFETY: device and set are the library's own. A device without events is not listened to.
            let _ = unsafe { register(device, XID_EVENT, events) };
            self.listened.push(device);
        }
    }

    /// Waits for the next round; an error of the driver ends the wait.
    pub fn wait(&mut self, pause: Duration) {
        let (Some(wait), Some(events)) = (self.functions.event_wait, self.events) else {
            return std::thread::sleep(pause);
        };
        let begun = std::time::Instant::now();
        let nobody = std::ptr::null_mut();
        let mut data =
            EventData { device: nobody, kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
        // SAFETY: the set is the library's own, and the event is written to a live value of its layout.
        let status = unsafe { wait(events, &mut data, pause.as_millis() as c_uint) };
        if status == SUCCESS && data.kind == XID_EVENT {
            self.xids.insert(data.device.addr(), data.data);
            // Further errors of the same moment are read with the next round.
            return std::thread::sleep(Duration::from_millis(100));
        }
        // A library that does not wait must not make the monitor spin.
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }
}

/// A device that is being read.
struct Asked {
    device: Device,
    /// The status by which the device was found lost.
    lost: Option<c_int>,
}

impl Asked {
    fn checked<T>(&mut self, answer: Result<T, c_int>) -> Option<T> {
        if let Err(GPU_IS_LOST) = answer {
            self.lost = Some(GPU_IS_LOST);
        }
        answer.ok()
    }

    fn get<T: Copy>(&mut self, function: Option<Get<T>>) -> Option<T> {
        let function = function?;
        // SAFETY: the device is the library's own, and the value is written to a live one of its type.
        let answer = value(|out| unsafe { function(self.device, out) });
        self.checked(answer)
    }

    fn get_by<T: Copy>(&mut self, function: Option<GetBy<T>>, by: c_uint) -> Option<T> {
        let function = function?;
        // SAFETY: as in `get`.
        let answer = value(|out| unsafe { function(self.device, by, out) });
        self.checked(answer)
    }

    fn get_by_two(&mut self, function: Option<GetByTwo>, a: c_uint, b: c_uint) -> Option<u64> {
        let function = function?;
        // SAFETY: as in `get`.
        let answer = value(|out| unsafe { function(self.device, a, b, out) });
        self.checked(answer)
    }

    fn text(&mut self, function: Option<GetText>) -> String {
        let mut buffer = [0 as c_char; 96];
        let Some(function) = function else { return String::new() };
        // SAFETY: the length is the buffer's, less the zero that ends a text that fills it.
        let status =
            unsafe { function(self.device, buffer.as_mut_ptr(), buffer.len() as c_uint - 1) };
        self.checked(if status == SUCCESS { Ok(text_of(&buffer)) } else { Err(status) })
            .unwrap_or_default()
    }

    fn rows(&mut self, function: Option<GetRows>) -> Option<[u64; 4]> {
        let function = function?;
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        // SAFETY: as in `get`, for four values.
        let status = unsafe {
            function(self.device, &mut corrected, &mut uncorrected, &mut pending, &mut failed)
        };
        let rows = [corrected, uncorrected, pending, failed].map(u64::from);
        self.checked(if status == SUCCESS { Ok(rows) } else { Err(status) })
    }

    fn get_two(&mut self, function: Option<GetTwo>) -> Option<(c_uint, c_uint)> {
        let (mut one, mut other) = (0, 0);
        // SAFETY: as in `get`, for two values.
        let status = unsafe { function?(self.device, &mut one, &mut other) };
        (status == SUCCESS).then_some((one, other))
    }

    fn compute_capability(&mut self, function: Option<GetTwo>) -> Option<ComputeCapability> {
        let (major, minor) = self.get_two(function)?;
        Some(ComputeCapability(u16::try_from(major).ok()?, u16::try_from(minor).ok()?))
    }

    /// The errors of all active links; `None` without links.
    fn link_errors(&mut self, of: &Functions) -> Option<u64> {
        let mut sum = None;
        for link in 0..NVLINKS {
            if self.get_by(of.link_state, link) != Some(1) {
                continue;
            }
            for counter in NVLINK_COUNTERS {
                let errors = self.get_by_two(of.link_errors, link, counter);
                sum = errors.map(|errors| sum.unwrap_or(0) + errors).or(sum);
            }
        }
        sum
    }
}

/// A value that a function writes, or its status.
fn value<T: Copy>(ask: impl FnOnce(*mut T) -> c_int) -> Result<T, c_int> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    match ask(value.as_mut_ptr()) {
        // SAFETY: every `T` here is numbers, texts of numbers or pointers, for which zeros are a value too.
        SUCCESS => Ok(unsafe { value.assume_init() }),
        status => Err(status),
    }
}

/// The text before the first zero.
fn text_of(bytes: &[c_char]) -> String {
    let text: Vec<u8> =
        bytes.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&text).into_owned()
}
