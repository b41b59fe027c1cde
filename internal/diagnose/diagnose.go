// Package diagnose looks at a fleet from outside, as an operator would: does the
// bucket keep its contract, which sessions are there, and do those that should
// answer answer?
package diagnose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"celld/internal/bucket"
	"celld/internal/id"
	"celld/internal/lease"
	"celld/internal/peer"
)

// Finding is one line of a diagnosis.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warn or fail
	Detail  string `json:"detail"`
	TookMS  int64  `json:"took_ms"`
}

// Verdicts.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// recent is how long after its end a session that was not sealed is still worth a line.
const recent = 24 * time.Hour

// Run makes the diagnosis. readOnly leaves out what writes to the bucket.
func Run(ctx context.Context, store bucket.Store, readOnly bool) []Finding {
	var out []Finding
	if !readOnly {
		out = append(out, timed("bucket contract", func() (string, string) { return contract(ctx, store) }))
	}
	sessions := lease.NewSessions(store, "diagnose", nil, nil)
	began := time.Now()
	infos, err := sessions.List(ctx)
	if err != nil {
		out = append(out, Finding{"sessions", Fail, err.Error(), time.Since(began).Milliseconds()})
		if len(infos) == 0 {
			return out
		}
	}
	client, cerr := prober(ctx, store)
	if client != nil {
		defer client.Close()
	}
	live := 0
	for _, s := range infos {
		if s.Live {
			live++
		}
		if f := session(s); f != nil {
			out = append(out, *f)
		}
		if s.Live {
			out = append(out, timed("peer "+string(s.Session), func() (string, string) { return probe(ctx, client, cerr, s) }))
		}
	}
	if live == 0 {
		out = append(out, Finding{"sessions", Warn, "no session is live: no node serves this bucket", 0})
	}
	return out
}

func timed(check string, f func() (verdict, detail string)) Finding {
	began := time.Now()
	v, d := f()
	return Finding{check, v, d, time.Since(began).Milliseconds()}
}

func contract(ctx context.Context, store bucket.Store) (string, string) {
	err := bucket.Probe(ctx, store)
	switch {
	case err == nil:
		return OK, store.String() + ": conditional create and overwrite, read-after-write and exact ranges hold"
	case errors.Is(err, bucket.ErrUnreachable):
		return Warn, err.Error()
	}
	return Fail, err.Error()
}

// session says what is worth saying of a session's record.
func session(s lease.Info) *Finding {
	f := &Finding{Check: "session " + string(s.Session), Verdict: OK}
	since := time.Since(time.UnixMilli(s.ExpiresMS)).Round(time.Second)
	switch {
	case s.Loss != nil:
		f.Verdict = Warn
		f.Detail = fmt.Sprintf("acknowledged writes may be lost: declared by %s at %s (%s)", s.Loss.By, time.UnixMilli(s.Loss.AtMS).UTC().Format(time.RFC3339), s.Loss.Note)
	case s.Live:
		f.Detail = fmt.Sprintf("live, %v left, at %s, %d cells owned, %d resident, weight %d", s.Left.Round(100*time.Millisecond), s.Address, s.Load.Owned, s.Load.Resident, s.Load.Weight)
		if s.Draining {
			f.Detail += ", draining"
		}
	case s.State == lease.Recovering:
		f.Verdict = Warn
		f.Detail = fmt.Sprintf("is being recovered by %s", s.Recoverer.Session)
	case s.State == lease.Open && since < recent:
		f.Verdict = Warn
		f.Detail = fmt.Sprintf("expired %v ago and is not sealed: its cells are taken over when somebody asks for them", since)
	default:
		return nil // ended in order, or long ago
	}
	return f
}

// prober is a client of the fleet, if the fleet has keys yet.
func prober(ctx context.Context, store bucket.Store) (*peer.Client, error) {
	if _, err := store.Head(ctx, peer.AuthKey); err != nil {
		return nil, fmt.Errorf("%s: %w", peer.AuthKey, err)
	}
	auth, err := peer.OpenAuth(ctx, store, "diagnose.0")
	if err != nil {
		return nil, err
	}
	return peer.NewClient(auth, nil), nil
}

// probe asks who answers at a session's address.
func probe(ctx context.Context, c *peer.Client, cerr error, s lease.Info) (string, string) {
	if s.Protocol.Min > peer.MaxProtocol || s.Protocol.Max < peer.MinProtocol {
		return Fail, fmt.Sprintf("speaks tunnel versions %d to %d, this celld %d to %d: they cannot call each other", s.Protocol.Min, s.Protocol.Max, peer.MinProtocol, peer.MaxProtocol)
	}
	if c == nil {
		return Fail, fmt.Sprintf("cannot be probed: %v", cerr)
	}
	found, err := c.Probe(ctx, s.Address)
	switch {
	case err != nil && strings.Contains(err.Error(), "not of this fleet"):
		return Fail, fmt.Sprintf("%s answers with a certificate of another fleet: %v", s.Address, err)
	case err != nil:
		return Fail, fmt.Sprintf("%s is unreachable from here: %v; look at --advertise and the network between the nodes", s.Address, err)
	case found != id.Session(s.Session):
		return Warn, fmt.Sprintf("session %s answers at %s: a replacement, or an address given to two nodes", found, s.Address)
	case public(s.Address):
		return Warn, s.Address + " is a public address: peers should talk over a private network"
	}
	return OK, s.Address + " answers as this session"
}

func public(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast()
}
