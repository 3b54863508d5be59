// Package databases makes logical databases and roles on a datastore, over SQL: PostgreSQL with
// pgx, MySQL (and MariaDB) with go-sql-driver, or either over the statements that a cloud's
// control plane runs.
//
// A role can do what its connection says and nothing besides: an owner everything inside its
// database, a reader read. Nothing here has a superuser's rights, since clouds give none; what
// PostgreSQL asks for besides, a membership in the role that is worked on, the administrator
// gives itself.
//
// Every method can be cut off after any statement and called again: each looks at what is there,
// and says again what may not have been heard. Statements that belong together are one message,
// which PostgreSQL takes as one transaction.
//
// No password is in a statement for PostgreSQL: it gets the verifier of SCRAM-SHA-256, computed
// here. MySQL gets it over the verified connection, or through the control plane. No error holds
// a password, or the text of a statement.
package databases
