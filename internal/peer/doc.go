// Package peer is the tunnel between two nodes: calls, sockets, RPC sessions
// and the node log, multiplexed over mutual TLS.
//
// Connections. A Client keeps a small set of TLS connections to each address
// it calls (conns.go); each carries many flow-controlled streams (yamux).
// Protocol versions are negotiated as ALPN names, so two nodes without a common
// version part before a single byte of a call. Certificates are made by each
// session for itself and signed with the fleet's key (auth.go); the one who
// dials names the session it means, and a certificate of any other session ends
// the dial. A failed dial is proof that nothing ran.
//
// One call is one stream (frame.go has the frames):
//
//	caller                        callee
//	Open(target, head, small body)
//	                              Refuse(reason)            nothing ran: call again elsewhere
//	                              Accept                    from here on everything else is ambiguous
//	Data… End  (streamed body)
//	                              Head, Data… End           a response
//	                              Fail(error)               what the handler threw
//	Text/Binary/Close  both ways                            after a Head with a socket
//	Message            both ways                            an RPC session
//
// A streamed body is not touched before Accept, so a refusal costs nothing.
// Nothing here retries, ever: who may call again is decided in package route
// by errors.Is(err, call.ErrNotStarted). Either side ends a call by closing the
// stream; the callee's context ends when the caller's stream does.
package peer
