package state

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
)

// maxKept bounds the statements that a connection keeps: there are a few dozen in this
// package, and none is made of values.
const maxKept = 128

// keptDriver opens connections that keep the statements which they have executed.
// SQLite parses and plans one each time else, which takes it as long as to do what
// it says: a sandbox's create writes three rows and three events.
type keptDriver struct {
	plain driver.Driver
	dsn   string
}

// openKept is sql.Open("sqlite", dsn) with such connections.
func openKept(dsn string) (*sql.DB, error) {
	plain, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return sql.OpenDB(keptDriver{plain.Driver(), dsn}), nil
}

// Driver is driver.Connector's, as is Connect.
func (d keptDriver) Driver() driver.Driver { return d.plain }

// Connect opens one.
func (d keptDriver) Connect(context.Context) (driver.Conn, error) {
	c, err := d.plain.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return &keptConn{sqliteConn: c.(sqliteConn), kept: map[string]driver.StmtExecContext{}}, nil
}

// sqliteConn is what the driver's connections can do and database/sql asks for.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// keptConn is one connection: used by one goroutine at a time.
type keptConn struct {
	sqliteConn
	kept map[string]driver.StmtExecContext
}

// ExecContext executes a change by the statement that is kept for it.
func (c *keptConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if s := c.kept[query]; s != nil {
		return s.ExecContext(ctx, args)
	}
	// Those that read give rows, which go on while others may ask the same; and a
	// file of many statements is executed once.
	if len(c.kept) >= maxKept || !strings.HasPrefix(query, "INSERT ") && !strings.HasPrefix(query, "UPDATE ") && !strings.HasPrefix(query, "DELETE ") {
		return c.sqliteConn.ExecContext(ctx, query, args)
	}
	// Not with the caller's context: the statement outlives the call.
	s, err := c.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	one, ok := s.(driver.StmtExecContext)
	if !ok {
		s.Close()
		return c.sqliteConn.ExecContext(ctx, query, args)
	}
	c.kept[query] = one
	return one.ExecContext(ctx, args)
}

// Close closes the statements first.
func (c *keptConn) Close() error {
	for _, s := range c.kept {
		s.(driver.Stmt).Close() // that of the connection frees what is left
	}
	c.kept = nil
	return c.sqliteConn.Close()
}
