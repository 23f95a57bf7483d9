-- The servers that lead or wait, as each says of itself. The one whose epoch is the lease's leads.
CREATE TABLE sluice.server (
    name text NOT NULL,
    clients text NOT NULL,
    agents text NOT NULL,
    version text NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    seen timestamptz NOT NULL,
    PRIMARY KEY (name, clients)
);
