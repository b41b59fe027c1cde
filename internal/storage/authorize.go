package storage

import (
	"reflect"
	"strings"

	driver "zombiezen.com/go/sqlite"
)

// useTransaction is what a user is told who tries to do our part.
const useTransaction = "To execute a transaction, please use the state.storage.transaction() or state.storage.transactionSync() APIs instead of the SQL BEGIN TRANSACTION or SAVEPOINT statements. The JavaScript API is safer because it will automatically roll back on exceptions, and because it interacts correctly with Durable Objects' automatic atomic write coalescing."

// authorizer decides what a statement may do, when it is prepared, and notes
// whether it writes.
type authorizer struct {
	user     bool // the statement is the user's; ours may do everything
	writes   bool
	selects  bool
	triedTxn bool
	tables   []string // tables written, for the counters
	deletes  bool
}

func (a *authorizer) reset(user bool) { *a = authorizer{user: user, tables: a.tables[:0]} }

// pragmas that a user may call: they look, or they set what is safe.
var pragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "table_list": true, "index_info": true, "index_xinfo": true, "index_list": true,
	"foreign_key_list": true, "foreign_key_check": true, "foreign_keys": true, "defer_foreign_keys": true, "optimize": true,
	"quick_check": true, "integrity_check": true, "case_sensitive_like": true, "recursive_triggers": true,
	"reverse_unordered_selects": true, "ignore_check_constraints": true, "legacy_alter_table": true, "function_list": true, "data_version": true,
}

// functions that tell of the engine, or reach out of the database.
var functions = map[string]bool{
	"sqlite_version": true, "sqlite_source_id": true, "sqlite_compileoption_get": true, "sqlite_compileoption_used": true,
	"fts3_tokenizer": true, "sqlite_offset": true, "sqlite_log": true, "edit": true, "readfile": true, "writefile": true,
}

// modules of virtual tables that a user may create.
var modules = map[string]bool{"fts5": true, "fts5vocab": true}

func hidden(name string) bool { return len(name) >= 4 && strings.EqualFold(name[:4], "_cf_") }

// Authorize is called by SQLite for each thing that a statement does.
func (a *authorizer) Authorize(act driver.Action) driver.AuthResult {
	switch act.Type() {
	case driver.OpSelect:
		a.selects = true
	case driver.OpInsert, driver.OpUpdate, driver.OpDelete:
		a.writes = true
		a.deletes = a.deletes || act.Type() == driver.OpDelete
		if t := act.Table(); t != "sqlite_master" && act.Accessor() == "" {
			a.tables = append(a.tables, t)
		}
	case driver.OpRead, driver.OpFunction, driver.OpRecursive, driver.OpTransaction, driver.OpSavepoint:
	default:
		a.writes = true
	}
	if !a.user {
		return driver.AuthResultOK
	}
	return a.ofUser(act)
}

func (a *authorizer) ofUser(act driver.Action) driver.AuthResult {
	if hidden(act.Table()) || hidden(act.Index()) || hidden(act.Trigger()) || hidden(act.View()) {
		return driver.AuthResultDeny
	}
	switch act.Type() {
	case driver.OpTransaction, driver.OpSavepoint:
		a.triedTxn = true
		return driver.AuthResultDeny
	case driver.OpAttach, driver.OpDetach, driver.OpCreateTempTable, driver.OpCreateTempIndex, driver.OpCreateTempTrigger, driver.OpCreateTempView,
		driver.OpDropTempTable, driver.OpDropTempIndex, driver.OpDropTempTrigger, driver.OpDropTempView:
		return driver.AuthResultDeny
	case driver.OpPragma:
		if strings.EqualFold(act.Pragma(), "foreign_keys") && act.PragmaArg() != "" {
			return driver.AuthResultIgnore // they are on; within a transaction SQLite would ignore it too
		}
		if !pragmas[strings.ToLower(act.Pragma())] {
			return driver.AuthResultDeny
		}
	case driver.OpFunction:
		if functions[strings.ToLower(functionName(act))] {
			return driver.AuthResultDeny
		}
	case driver.OpCreateVTable, driver.OpDropVTable:
		if !modules[strings.ToLower(act.Module())] {
			return driver.AuthResultDeny
		}
	}
	if act.Database() == "temp" && act.Type() != driver.OpRead && act.Type() != driver.OpFunction {
		return driver.AuthResultDeny
	}
	return driver.AuthResultOK
}

// functionName is the function of an OpFunction action. The driver keeps it in a
// field that it has no accessor for; reading one by reflection is allowed.
func functionName(act driver.Action) string {
	f := reflect.ValueOf(act).FieldByName("arg2")
	if !f.IsValid() {
		return ""
	}
	return f.String()
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
