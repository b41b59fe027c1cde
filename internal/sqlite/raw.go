package sqlite

import (
	"reflect"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	driver "zombiezen.com/go/sqlite"
)

// ColumnName is the name of a column. The driver keeps names in a map, where of
// two columns of one name only one is left; SQLite itself knows both.
func ColumnName(st *driver.Stmt, i int) string {
	if name := st.ColumnName(i); name != "" {
		return name
	}
	tls, stmt := raw(st)
	return libc.GoString(lib.Xsqlite3_column_name(tls, stmt, int32(i)))
}

// raw is SQLite's own handle behind the driver's statement.
func raw(st *driver.Stmt) (*libc.TLS, uintptr) {
	v := reflect.ValueOf(st).Elem()
	conn := v.FieldByName("conn").Elem()
	return (*libc.TLS)(conn.FieldByName("tls").UnsafePointer()), uintptr(v.FieldByName("stmt").Uint())
}
