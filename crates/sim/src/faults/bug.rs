//! Bugs that are put in on purpose, to show that the simulator finds such: invented ones, and defects that the server or the agent
//! once had. They are compiled into tests alone, and with the feature `deliberate-bugs`.

/// One deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Clients are answered before the commit is on disk.
    AckBeforeCommit,
    /// An agent does not compare an order with those that it has seen: not its term, its serial or its attempt.
    MissingFence,
    /// An attempt's end is acknowledged to its node and not taken in, so that its resources do not come back.
    LostRelease,
    /// An agent starts an attempt twice.
    DoubledLaunch,
    /// A report counts for the job's present attempt, whichever attempt it is about.
    StaleReportTaken,
    /// Usage is charged where a step starts.
    StepsCharged,
    /// The devices that an attempt is granted are not counted as used.
    DevicesUncounted,
    /// Once in the state machine: nodes that a job had whole stay marked so when the configuration shares them.
    MarksOfOldConfiguration,
    /// Once in the agents' sessions: a link whose hello could not be kept lives on.
    UnkeptHelloLinkLives,
    /// Once in the writer: nodes do not say hello again after a failed commit that the disk has.
    KeptCommitUnsent,
    /// Once in the dispatcher: a node that the configuration names again keeps its link, and says no hello.
    NamedAgainWithoutHello,
    /// Once in the agent: a repeated launch of an attempt that is here is reported as a launch that failed.
    RepeatedLaunchFails,
    /// Once in the agents' sessions: a node whose loss could not be written is never marked as lost.
    UnwrittenLossForgotten,
    /// Once in the dispatcher: a hello is answered also where another link has taken over since.
    OvertakenHelloAnswered,
    /// Once in the dispatcher: an order about an attempt goes out on a new link before the hello says whether the node has it.
    OrderBeforeLaunch,
    /// Once in the dispatcher: a suspended attempt that its node does not have is launched, and runs.
    SuspendedLaunched,
    /// Once in the agents' sessions: a link that one with an older hello took over from goes on when that one has ended.
    OvertakenLinkLives,
}

impl Bug {
    pub const ALL: [Self; 17] = [
        Self::AckBeforeCommit,
        Self::MissingFence,
        Self::LostRelease,
        Self::DoubledLaunch,
        Self::StaleReportTaken,
        Self::StepsCharged,
        Self::DevicesUncounted,
        Self::MarksOfOldConfiguration,
        Self::UnkeptHelloLinkLives,
        Self::KeptCommitUnsent,
        Self::NamedAgainWithoutHello,
        Self::RepeatedLaunchFails,
        Self::UnwrittenLossForgotten,
        Self::OvertakenHelloAnswered,
        Self::OrderBeforeLaunch,
        Self::SuspendedLaunched,
        Self::OvertakenLinkLives,
    ];
}

/// Which deliberate bug a history has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bugs {
    #[cfg(any(test, feature = "deliberate-bugs"))]
    on: Option<Bug>,
}

impl Bugs {
    #[cfg(any(test, feature = "deliberate-bugs"))]
    pub fn with(bug: Bug) -> Self {
        Self { on: Some(bug) }
    }

    #[cfg(any(test, feature = "deliberate-bugs"))]
    pub(super) fn has(self, bug: Bug) -> bool {
        self.on == Some(bug)
    }

    #[cfg(not(any(test, feature = "deliberate-bugs")))]
    pub(super) fn has(self, _bug: Bug) -> bool {
        false
    }
}
