-- What every server of the cluster has in its folder of keys, and the administrator's token. The servers seal the content, under
-- a key that is not in this database.
CREATE TABLE sluice.shared_file (
    name text COLLATE "C" PRIMARY KEY,
    content bytea NOT NULL
);
