//! `sacctmgr show` against the captures.

use super::*;
use model::tres::Tres;

fn association(account: &str, user: Option<&str>, qos: &[&str]) -> Association {
    Association {
        default: user.is_some(),
        qos: qos.iter().map(|name| (*name).to_owned()).collect(),
        ..Association::plain(account, user)
    }
}

fn account(name: &str, description: &str, organization: &str, parent: Option<&str>) -> Account {
    Account {
        name: name.into(),
        description: description.into(),
        organization: organization.into(),
        parent: parent.map(str::to_owned),
        coordinators: Vec::new(),
    }
}

fn lab() -> AccountsView {
    let named = ["capped", "high", "low", "normal"];
    AccountsView {
        cluster: "lab".into(),
        accounts: vec![
            account("root", "default root account", "root", None),
            account("physics", "physics", "lab", Some("root")),
            account("chem", "chem", "lab", Some("root")),
        ],
        associations: vec![
            association("root", None, &[]),
            association("root", Some("root"), &[]),
            association("physics", None, &[]),
            association("physics", Some("alice"), &named),
            association("chem", None, &[]),
            association("chem", Some("bob"), &named),
        ],
        qos: vec![Qos::named("normal")],
        roles: Default::default(),
        only_user: None,
        deleted: Default::default(),
    }
}

fn shown(entity: Entity, view: &AccountsView, options: &Options) -> String {
    let mut out = Vec::new();
    let control = ControlAddress { host: "127.0.0.1".into(), port: 16817 };
    show(&mut out, entity, view, &["gpu".into()], &control, options).expect("good fields");
    String::from_utf8(out).expect("text")
}

#[test]
fn the_default_tables_are_those_of_slurm() {
    let usual = Options::default();
    let with_associations = Options { associations: true, ..Options::default() };
    let table = [
        (
            Entity::Qos,
            &usual,
            concat!(
                "      Name   Priority  GraceTime    Preempt   PreemptExemptTime PreemptMode                                    Flags UsageThres UsageFactor       GrpTRES   GrpTRESMins GrpTRESRunMin GrpJobs GrpSubmit     GrpWall       MaxTRES MaxTRESPerNode   MaxTRESMins     MaxWall     MaxTRESPU MaxJobsPU MaxSubmitPU     MaxTRESPA MaxJobsPA MaxSubmitPA       MinTRES \n",
                "---------- ---------- ---------- ---------- ------------------- ----------- ---------------------------------------- ---------- ----------- ------------- ------------- ------------- ------- --------- ----------- ------------- -------------- ------------- ----------- ------------- --------- ----------- ------------- --------- ----------- ------------- \n",
                "    normal          0   00:00:00                                    cluster                                                        1.000000                                                                                                                                                                                                                      \n",
            ),
        ),
        (
            Entity::Account,
            &usual,
            concat!(
                "   Account                Descr                  Org \n",
                "---------- -------------------- -------------------- \n",
                "      chem                 chem                  lab \n",
                "   physics              physics                  lab \n",
                "      root default root account                 root \n",
            ),
        ),
        (
            Entity::User,
            &usual,
            concat!(
                "      User   Def Acct     Admin \n",
                "---------- ---------- --------- \n",
                "     alice    physics      None \n",
                "       bob       chem      None \n",
                "      root       root Administ+ \n",
            ),
        ),
        (
            Entity::User,
            &with_associations,
            concat!(
                "      User   Def Acct     Admin    Cluster    Account  Partition     Share   Priority MaxJobs MaxNodes  MaxCPUs MaxSubmit     MaxWall  MaxCPUMins                  QOS   Def QOS \n",
                "---------- ---------- --------- ---------- ---------- ---------- --------- ---------- ------- -------- -------- --------- ----------- ----------- -------------------- --------- \n",
                "     alice    physics      None        lab    physics                    1                                                                        capped,high,low,nor+           \n",
                "       bob       chem      None        lab       chem                    1                                                                        capped,high,low,nor+           \n",
                "      root       root Administ+        lab       root                    1                                                                                      normal           \n",
            ),
        ),
        (
            Entity::Tres,
            &usual,
            concat!(
                "    Type            Name     ID \n",
                "-------- --------------- ------ \n",
                "     cpu                      1 \n",
                "     mem                      2 \n",
                "  energy                      3 \n",
                "    node                      4 \n",
                " billing                      5 \n",
                "      fs            disk      6 \n",
                "    vmem                      7 \n",
                "   pages                      8 \n",
                "    gres             gpu   1001 \n",
            ),
        ),
        (Entity::RunawayJob, &usual, "Runaway Jobs: No runaway jobs found on cluster lab\n"),
    ];
    for (entity, options, expected) in table {
        assert_eq!(shown(entity, &lab(), options), expected);
    }
}

#[test]
fn limits_are_shown_under_each_of_their_names() {
    let mut view = lab();
    let mut capped = Qos::named("capped");
    capped.max_tres_per_user = Tres::parse("gres/gpu=4").expect("a good list");
    view.qos.push(capped);
    for name in ["MaxTRESPU", "MaxTRESPerUser", "maxtrespu", "MaxTRESPerU"] {
        let options = Options {
            format: Some(format!("name,{name}%20")),
            no_header: true,
            layout: Layout::Separated("|".into()),
            names: vec!["capped".into()],
            ..Options::default()
        };
        assert_eq!(shown(Entity::Qos, &view, &options), "capped|gres/gpu=4\n", "{name}");
    }
}

#[test]
fn associations_are_listed_under_their_account() {
    let options = Options {
        format: Some("account,user,share".into()),
        layout: Layout::Ended("|".into()),
        no_header: true,
        ..Options::default()
    };
    let expected = "root||1|\nroot|root|1|\nchem||1|\nchem|bob|1|\nphysics||1|\nphysics|alice|1|\n";
    assert_eq!(shown(Entity::Association, &lab(), &options), expected);
}

/// As captured: limits per job and user of an account are shown with the associations below it, its group limits are not.
#[test]
fn limits_of_an_account_are_shown_with_its_users_except_group_limits() {
    use model::account::Shares;
    let mut view = lab();
    let physics = &mut view.associations[2];
    physics.priority = Some(7);
    physics.limits.group_jobs = Some(5);
    physics.limits.max_jobs = Some(3);
    physics.limits.max_tres_per_job = Tres::parse("cpu=4").expect("a list");
    let alice = &mut view.associations[3];
    alice.limits.max_tres_per_job = Tres::parse("node=2").expect("a list");
    alice.shares = Shares::PARENT;
    let mut for_gpu = alice.clone();
    for_gpu.partition = Some("gpu".into());
    for_gpu.shares = Shares::Count(9);
    for_gpu.limits.max_jobs = Some(5);
    view.associations.push(for_gpu);
    let options = Options {
        format: Some("account,user,partition,share,priority,grpjobs,maxjobs,maxtres".into()),
        layout: Layout::Separated("|".into()),
        no_header: true,
        ..Options::default()
    };
    let text = shown(Entity::Association, &view, &options);
    let lines: Vec<&str> = text.lines().skip(4).collect();
    let expected = [
        "physics|||1|7|5|3|cpu=4",
        "physics|alice|gpu|9|7||5|cpu=4,node=2",
        "physics|alice||parent|7||3|cpu=4,node=2",
    ];
    assert_eq!(lines, expected);
    let accounts =
        Options { associations: true, layout: Layout::Separated("|".into()), ..Options::default() };
    let text = shown(Entity::Account, &view, &accounts);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "Account|Descr|Org|Cluster|ParentName|User|Share|Priority|GrpJobs|GrpNodes|GrpCPUs|GrpMem|GrpSubmit|GrpWall|\
         GrpCPUMins|MaxJobs|MaxNodes|MaxCPUs|MaxSubmit|MaxWall|MaxCPUMins|QOS|Def QOS"
    );
    assert_eq!(lines[3], "physics|physics|lab|lab|root||1|7|5|||||||3||4||||normal|");
}

fn columns(format: &str) -> Options {
    Options {
        format: Some(format.to_owned()),
        layout: Layout::Separated("|".into()),
        no_header: true,
        ..Options::default()
    }
}

#[test]
fn tree_has_each_account_as_far_to_the_right_as_it_is_deep() {
    let options = Options { tree: true, ..columns("account,user") };
    let expected = "root|\n root|root\n chem|\n  chem|bob\n physics|\n  physics|alice\n";
    assert_eq!(shown(Entity::Association, &lab(), &options), expected);
    let aligned = Options { layout: Layout::Aligned, ..options };
    let text = shown(Entity::Association, &lab(), &aligned);
    let line = format!("{:<20} {:>10} ", "  physics", "alice");
    assert_eq!(text.lines().last(), Some(line.as_str()));
}

#[test]
fn what_comes_from_above_is_shown_beside_a_filter_and_left_out_where_that_is_said() {
    let mut view = lab();
    view.associations[2].limits.max_jobs = Some(3);
    let filter = AssociationFilter { users: vec!["alice".into()], ..AssociationFilter::default() };
    let alice = Options { filter, ..columns("account,user,maxjobs") };
    assert_eq!(shown(Entity::Association, &view, &alice), "physics|alice|3\n");
    let own = Options { own_limits: true, ..alice };
    assert_eq!(shown(Entity::Association, &view, &own), "physics|alice|\n");

    let filter = || AssociationFilter { accounts: vec!["chem".into()], ..Default::default() };
    let chem = Options { filter: filter(), ..columns("account,user,parentname,qos") };
    let expected = "chem||root|normal\nchem|bob||capped,high,low,normal\n";
    assert_eq!(shown(Entity::Association, &view, &chem), expected);
    let own = Options { no_parents: true, own_qos: true, ..chem };
    let expected = "chem|||\nchem|bob||capped,high,low,normal\n";
    assert_eq!(shown(Entity::Association, &view, &own), expected);

    let filter = AssociationFilter { only_defaults: true, ..filter() };
    let defaults = Options { filter, ..columns("account,user") };
    assert_eq!(shown(Entity::Association, &view, &defaults), "chem|bob\n");
}

#[test]
fn a_cluster_of_another_name_is_not_shown() {
    for (name, text) in [("Lab", "lab\n"), ("other", "")] {
        let options = Options { names: vec![name.into()], ..columns("cluster") };
        assert_eq!(shown(Entity::Cluster, &lab(), &options), text, "{name}");
    }
}

#[test]
fn an_unknown_field_is_refused() {
    let options = Options { format: Some("bogus".into()), ..Options::default() };
    let mut out = Vec::new();
    let control = ControlAddress::default();
    let refused = show(&mut out, Entity::Qos, &lab(), &[], &control, &options);
    assert_eq!(refused.expect_err("no such field").to_string(), "Unknown field 'bogus'");
}

#[test]
fn entities_are_named_by_beginning_or_plural() {
    let table = [
        ("qos", Some(Entity::Qos)),
        ("accounts", Some(Entity::Account)),
        ("assoc", Some(Entity::Association)),
        ("Users", Some(Entity::User)),
        ("clusters", Some(Entity::Cluster)),
        ("bogus", None),
    ];
    for (word, entity) in table {
        assert_eq!(Entity::parse(word), entity, "{word}");
    }
}

#[test]
fn what_was_deleted_is_listed_with_its_flag() {
    let mut view = lab();
    view.deleted.add_account(account("optics", "light", "lab", Some("physics")));
    view.deleted.add_association(association("optics", Some("carol"), &[]));
    view.deleted.add_association(association("optics", Some("alice"), &[]));
    view.deleted.add_qos(Qos::named("tmpq"));
    let view = view.with_deleted();
    let rows = |entity: Entity, format: &str| {
        let (format, layout) = (Some(format.to_owned()), Layout::Separated("|".to_owned()));
        let options = Options { format, layout, no_header: true, ..Options::default() };
        shown(entity, &view, &options)
    };
    assert!(rows(Entity::Account, "account,flags").contains("\noptics|Deleted\n"));
    assert!(rows(Entity::Account, "account,flags").contains("physics|\n"));
    assert!(rows(Entity::Association, "account,user,flags").ends_with("optics|carol|Deleted\n"));
    assert!(rows(Entity::Qos, "name,flags").ends_with("tmpq|Deleted\n"));
    // A user who is in another account still is not deleted.
    let users = rows(Entity::User, "user,defaultaccount,flags");
    assert!(users.contains("alice|physics|\n") && users.contains("carol|optics|Deleted\n"));
    let options = Options { deleted: true, ..Options::default() };
    for entity in [Entity::Account, Entity::User, Entity::Association] {
        let text = shown(entity, &view, &options);
        assert!(text.lines().next().is_some_and(|head| head.trim_end().ends_with("Flags")));
    }
}

#[test]
fn accounts_users_and_qos_are_chosen_by_conditions() {
    let mut view = lab();
    view.accounts.push(account("optics", "light", "uni", Some("physics")));
    let mut gpu = association("physics", Some("alice"), &[]);
    (gpu.partition, gpu.default) = (Some("gpu".into()), false);
    view.associations.push(gpu);
    let rows = |entity: Entity, format: &str, filter: AssociationFilter, conditions: Conditions| {
        let (format, layout) = (Some(format.to_owned()), Layout::Separated("|".to_owned()));
        let shape = Options { format, layout, no_header: true, ..Options::default() };
        shown(entity, &view, &Options { filter, conditions, ..shape })
    };
    let all = AssociationFilter::default;
    let list = |word: &str| vec![word.to_owned()];
    let below = || Conditions { parents: list("physics"), ..Conditions::default() };
    assert_eq!(rows(Entity::Account, "account", all(), below()), "optics\n");
    let at = Conditions { organizations: list("UNI"), ..Conditions::default() };
    assert_eq!(rows(Entity::Account, "account", all(), at), "optics\n");
    let described = Conditions { descriptions: list("chem"), ..Conditions::default() };
    assert_eq!(rows(Entity::Account, "account", all(), described.clone()), "chem\n");
    assert_eq!(rows(Entity::Qos, "name", all(), described), "");
    let admins = Conditions { admin_levels: list("admin"), ..Conditions::default() };
    assert_eq!(rows(Entity::User, "user", all(), admins), "root\n");
    let charged = Conditions { default_accounts: list("chem"), ..Conditions::default() };
    assert_eq!(rows(Entity::User, "user", all(), charged), "bob\n");
    let gpu = AssociationFilter { partitions: list("gpu"), ..all() };
    let found = rows(Entity::Association, "user,partition", gpu, Conditions::default());
    assert_eq!(found, "alice|gpu\n");
}
