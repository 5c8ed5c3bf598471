BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE cooldowns (
	"key" TEXT NOT NULL, 
	until DOUBLE NOT NULL, 
	failures INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	failure TEXT NOT NULL, 
	image TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE history (
	seq INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	record TEXT NOT NULL, 
	event TEXT NOT NULL, 
	detail TEXT NOT NULL, code TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE inbox (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	body_sha256 BLOB NOT NULL, 
	event TEXT NOT NULL, 
	received_at DOUBLE NOT NULL, 
	applied BOOLEAN NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq), 
	CONSTRAINT inbox_body UNIQUE (body_sha256)
);
INSERT INTO "inbox" VALUES(1,'a',X'3A7833F88D9B2BDCA4F3370F7C195D6C08AFC4F0206204CA579CC40D67BC878D','workflow_job',100.0,0,X'28B52FFD201465000010207D0200E17C8880F37680');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	ended_at DOUBLE, 
	record TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES(7,'queued',NULL,'{"id":7,"repository":"acme/widgets","labels":["linux.gpu"],"demand":{"scope":"org:acme","runner_group":"gpu","labels":["linux.gpu"],"skus":["linux.gpu"]},"state":"queued","queued_at":100.0,"updated_at":100.0,"name":"","workflow":"","run_id":null,"run_attempt":1,"runner_name":null,"started_at":null,"completed_at":null,"conclusion":null,"disputed":false,"read_at":null,"passed_over":[],"probe_at":null,"origin":{"from_fork":false,"public":true,"branch":"main"},"admission":"admitted"}');
CREATE TABLE launch_requests (
	id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	ended_at DOUBLE, 
	record TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE machines (
	id TEXT NOT NULL, 
	launch_request TEXT NOT NULL, 
	state TEXT NOT NULL, 
	ended_at DOUBLE, 
	record TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('installation','0badcafe');
INSERT INTO "meta" VALUES('former_installations','[]');
INSERT INTO "meta" VALUES('heartbeat','123.5');
CREATE TABLE readings (
	provider TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	read_at DOUBLE NOT NULL, 
	PRIMARY KEY (provider, kind, name)
);
CREATE TABLE reruns (
	job INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	ended_at DOUBLE, 
	record TEXT NOT NULL, 
	PRIMARY KEY (job)
);
CREATE TABLE runners (
	name TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	state TEXT NOT NULL, 
	ended_at DOUBLE, 
	record TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE INDEX jobs_ended_at ON jobs (ended_at);
CREATE INDEX launch_requests_ended_at ON launch_requests (ended_at);
CREATE INDEX machines_ended_at ON machines (ended_at);
CREATE INDEX machines_launch_request ON machines (launch_request);
CREATE INDEX runners_ended_at ON runners (ended_at);
CREATE INDEX reruns_ended_at ON reruns (ended_at);
CREATE INDEX inbox_received_at ON inbox (received_at);
CREATE INDEX inbox_unapplied ON inbox (seq) WHERE applied = 0;
CREATE INDEX history_record ON history (kind, record, seq);
CREATE INDEX history_at ON history (at);
COMMIT;
