// Package ingress is the public listener: it turns HTTP into calls and answers
// back, and knows nothing of cells.
//
// One request: Handler.ServeHTTP answers the health path itself and refuses
// what is too large; request() makes the call.Request; the entrypoint's Fetch
// returns a head that may be shown; respond() writes it and streams the body
// as it comes, or splice() joins two sockets after an upgrade. A client that
// goes away ends the context of its call. An error becomes a status by
// status(), the one table of them.
//
// Nothing of the operator's surface is reachable here.
package ingress
