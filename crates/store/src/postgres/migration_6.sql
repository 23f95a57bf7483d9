-- A submit writes one extent of some kilobytes and one frame: they stay in their tables' own pages, where moving them out would be
-- several rows each. A check against sluice.file at every extent would lock and log its row; the statements that write extents look
-- themselves whether the file is there, and what removes a file removes its extents.
ALTER TABLE sluice.extent SET (toast_tuple_target = 8160);
ALTER TABLE sluice.journal SET (toast_tuple_target = 8160);
ALTER TABLE sluice.extent DROP CONSTRAINT extent_file_fkey;
CREATE FUNCTION sluice.remove_extents() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    DELETE FROM sluice.extent WHERE file = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER remove_extents AFTER DELETE ON sluice.file
    FOR EACH ROW EXECUTE FUNCTION sluice.remove_extents();
