-- Where the next commit's bytes may lie without a look at the file and its extents: from free_begin to free_end of this file. The commit
-- that has looked notes it in the row of the head, which each commit changes anyway; whatever else changes the file takes it back, and so
-- does whoever takes the lead. An older program that leads neither notes nor reads it.
ALTER TABLE sluice.head
    ADD COLUMN free_file bigint NOT NULL DEFAULT 0,
    ADD COLUMN free_begin bigint NOT NULL DEFAULT 0,
    ADD COLUMN free_end bigint NOT NULL DEFAULT 0;
CREATE FUNCTION sluice.forget_free() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    UPDATE sluice.head SET free_file = 0 WHERE free_file = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_free AFTER UPDATE OR DELETE ON sluice.file
    FOR EACH ROW EXECUTE FUNCTION sluice.forget_free();
