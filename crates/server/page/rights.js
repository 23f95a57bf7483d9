// What somebody who is signed in may do, as far as the server has told the page: what could only be refused is not offered. The server
// decides for itself.

/** By the words that forms and lists have for whom they are for. */
const RIGHTS = {
  /** For one's own things, or for what one's projects have. */
  everybody: () => true,
  /** Coordinators of accounts, who are the managers of these projects. */
  coordinators: (profile) => profile.coordinates_accounts || profile.role !== "user",
  /** Admins of a project, or of the cluster; operators see no secrets. */
  secretManagers: (profile) => profile.manages_secrets,
  /** Whoever is no operator manages secrets as the admin of a project. */
  projectAdmins: (profile) => profile.manages_secrets || profile.role !== "user",
  operators: (profile) => profile.role !== "user",
  admins: (profile) => profile.role === "admin",
};

/** Said to a session that may only look, where it would change something else. */
export const LOOKS_ONLY = "Pages of jobs have this page's origin here, so operators and administrators only look: change it by commands.";

export const may = (profile, right = "everybody") => RIGHTS[right](profile);
