package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/open"
	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/deploy"
	"celld/internal/id"
	"celld/internal/ingress"
	"celld/internal/lease"
	"celld/internal/lease/watchdog"
	"celld/internal/logfilter"
	"celld/internal/operator"
	"celld/internal/owner"
	"celld/internal/peer"
	"celld/internal/replica"
	"celld/internal/route"
	"celld/internal/worker"
)

const (
	// uploads at once; more cells wait their turn.
	uploads = 64
	// idleClose is how long a resident cell's database stays open without a turn.
	idleClose = 30 * time.Second
	// alarmResident keeps cells in memory whose alarm is due within it.
	alarmResident = time.Minute
	// fenceGrace is how long the process may take to fence itself before the watchdog ends it.
	fenceGrace = 3 * time.Second
	// consoleTarget is the log target of what Workers print.
	consoleTarget = "console"
)

// ErrFenced: the node fenced itself and has stopped everything.
var ErrFenced = errors.New("the node fenced itself")

// Options are what a command adds to the settings.
type Options struct {
	// ShowErrors answers an exception with its text and stack; for development.
	ShowErrors bool
}

// Node is a running node.
type Node struct {
	set   Settings
	log   *slog.Logger
	dir   *lease.WorkDir
	store bucket.Store
	lease *lease.Lease

	rt       *worker.Runtime
	apps     *apps
	watcher  *deploy.Watcher
	cells    *cell.Manager
	replica  *replica.Replicator
	router   *route.Router
	peers    *peer.Client
	server   *peer.Server
	sessions *lease.Sessions

	public, internal net.Listener
	handler          *ingress.Handler
	web, ops         *http.Server
	closers          []func()

	paused     atomic.Bool // rebalancing
	rebalanced atomic.Int64

	stop     context.CancelFunc // asks for a graceful end
	stopping context.Context
	fenced   chan struct{}
	once     sync.Once
}

// Start brings a node up to the point where it serves, in the order that
// protocol §6 wants: nothing is owned before there is a lease, and no lease is
// taken before the predecessor on this machine is sealed.
func Start(ctx context.Context, s Settings, o Options) (_ *Node, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	n := &Node{set: s, log: logfilter.Logger(logfilter.DefaultTarget), fenced: make(chan struct{})}
	n.stopping, n.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	// Nobody else works in the directory; the bucket keeps its contract.
	if n.dir, err = lease.LockWorkDir(s.WorkDir); err != nil {
		return nil, err
	}
	n.closers = append(n.closers, func() { n.dir.Unlock() })
	if err := n.openBucket(ctx); err != nil {
		return nil, err
	}
	// Listeners are bound before anything slow, and answer 503 until the node serves.
	if err := n.listen(o); err != nil {
		return nil, err
	}
	// JavaScript, and what is deployed.
	if n.rt, err = worker.NewRuntime(); err != nil {
		return nil, err
	}
	n.apps = &apps{rt: n.rt, options: n.workerOptions, log: n.log, grace: s.DeployMaxAge, moved: n.renewCells}
	n.watcher = deploy.NewWatcher(n.store, n.apps.adopt, n.log)
	// The right to act.
	if err := n.takeLease(ctx); err != nil {
		return nil, err
	}
	// Cells, and the way to them.
	if err := n.serveCells(ctx); err != nil {
		return nil, err
	}
	n.serve()
	return n, nil
}

func (n *Node) openBucket(ctx context.Context) (err error) {
	url, err := bucketURL(n.set.Bucket)
	if err != nil {
		return fmt.Errorf("CELLD_BUCKET: %w", err)
	}
	o := open.Options{Endpoint: n.set.Endpoint, Region: n.set.Region}
	if n.store, err = open.Bucket(ctx, url, o); err != nil {
		return err
	}
	n.closers = append(n.closers, func() { open.Close(n.store) })
	switch err := bucket.Probe(ctx, n.store); {
	case errors.Is(err, bucket.ErrViolation):
		return err
	case err != nil:
		n.log.Warn("the bucket could not be probed; going on", "event", "bucket_probe", "err", err)
	}
	return nil
}

func (n *Node) listen(o Options) (err error) {
	if n.public, err = net.Listen("tcp", n.set.Listen); err != nil {
		return fmt.Errorf("--listen %s: %w", n.set.Listen, err)
	}
	n.closers = append(n.closers, func() { n.public.Close() })
	if n.internal, err = net.Listen("tcp", n.set.InternalListen); err != nil {
		return fmt.Errorf("--internal-listen %s: %w", n.set.InternalListen, err)
	}
	n.closers = append(n.closers, func() { n.internal.Close() })
	n.handler = ingress.New(ingress.Options{Service: func() call.Service { return n.apps.entrypoint() }, MaxBody: n.set.MaxBody,
		TrustForwarded: n.set.TrustForwarded, ShowErrors: o.ShowErrors, Log: n.log})
	n.web = ingress.Server(n.handler)
	go n.web.Serve(n.public)
	return nil
}

// address is where peers reach the internal listener.
func (n *Node) address() string {
	if n.set.Advertise != "" {
		return n.set.Advertise
	}
	return n.internal.Addr().String()
}

func (n *Node) takeLease(ctx context.Context) error {
	name, err := n.dir.Node(n.set.Node)
	if err != nil {
		return err
	}
	session := lease.NewSession(name)
	before, err := n.dir.Predecessor()
	if err != nil {
		return err
	}
	n.sessions = lease.NewSessions(n.store, session, nil, nil)
	if before != "" {
		n.sessions.Gone(before)
		if err := n.sealPredecessor(ctx, before); err != nil {
			return err
		}
	}
	if err := n.dir.Remember(session); err != nil {
		return err
	}
	if err := watchdog.Start(fenceGrace); err != nil {
		return err
	}
	url, err := bucketURL(n.set.Bucket)
	if err != nil {
		return err
	}
	own, err := open.Bucket(ctx, url, open.Options{Endpoint: n.set.Endpoint, Region: n.set.Region, AppTag: "celld-lease"})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, func() { open.Close(own) })
	n.lease, err = lease.Start(ctx, session, lease.Config{
		Store: own, Node: name, Address: n.address(), Zone: n.set.Zone, TTL: n.set.TTL,
		Protocol: lease.Protocol{Min: peer.MinProtocol, Max: peer.MaxProtocol},
		Load:     n.load, Log: n.log, Wire: logfilter.Logger("store"),
		Fenced: n.fence, Deadline: watchdog.Deadline,
	})
	return err
}

// sealPredecessor tries until it succeeds: what the session before this one
// acknowledged must be visible before this one owns anything.
func (n *Node) sealPredecessor(ctx context.Context, before id.Session) error {
	for {
		err := n.sessions.Seal(ctx, before)
		if err == nil {
			return nil
		}
		n.log.Warn("the session before this one is not sealed yet, trying on", "event", "predecessor_seal", "session", before, "err", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (n *Node) serveCells(ctx context.Context) error {
	session := n.lease.Session()
	n.replica = replica.New(n.store, n.log)
	records := owner.New(n.store, owner.Self{Session: session, Node: session.Node(), Address: n.address()}, n.sessions)
	var err error
	n.cells, err = cell.New(cell.Config{
		Store: n.store, Records: records, Engine: worker.Engine{Current: n.apps.script}, Replication: replication{n.replica},
		Authority: n.lease.Authority, Dir: filepath.Join(n.set.WorkDir, "cells"), Log: n.log,
		Activations: n.set.Activations, MaxResident: n.set.MaxResident, MaxCalls: n.set.MaxCellRequests, Uploads: uploads,
		IdleEvict: n.set.IdleEvict, IdleClose: idleClose, AlarmResident: alarmResident, Durability: n.set.DurabilityTimeout, WakerTick: n.set.WakerTick,
	})
	if err != nil {
		return err
	}
	auth, err := peer.OpenAuth(ctx, n.store, session)
	if err != nil {
		return err
	}
	n.peers = peer.NewClient(auth, nil)
	n.router = route.New(route.Config{Local: n.cells, Peers: n.peers, Lives: n.lives, Deadline: n.set.OperationDeadline, Session: session, Authority: n.lease.Authority})
	n.server = peer.NewServer(auth, n.router.Resolve, logfilter.Logger("peer"))
	n.server.Handle(handoffProtocol, n.takeOver)
	return nil
}

// renewCells moves resident cells to the code that serves now.
func (n *Node) renewCells(ctx context.Context) {
	if n.cells != nil {
		n.cells.Renew(ctx)
	}
}

func (n *Node) lives(ctx context.Context, s id.Session) (time.Time, bool, error) {
	l, err := n.sessions.Lease(ctx, s)
	return l.Deadline, l.Live, err
}

// serve opens the doors.
func (n *Node) serve() {
	plain, tls := operator.Split(n.internal)
	n.ops = operator.Server(operator.Handler(n, n.metrics(), n.set.OperatorToken))
	go n.ops.Serve(plain)
	go n.server.Serve(tls)
	go n.watcher.Run(n.stopping, n.set.DeployPoll)
	go n.shed()
	go n.rebalance()
	go n.sessions.RunSweep(n.stopping)
	n.handler.SetHealth(ingress.Serving)
	n.log.Info("node serves", "event", "node_serves", "session", n.lease.Session(), "public", n.PublicAddr(), "internal", n.InternalAddr(), "bucket", n.store.String())
}

func (n *Node) workerOptions() worker.Options {
	return worker.Options{
		Stateless: n.set.StatelessPool, Cells: max(n.set.StatelessPool, 1), HeapLimit: n.set.HeapLimit, CPULimit: n.set.CPULimit,
		MaxRequests: n.set.MaxRequests, AdmissionWait: n.set.AdmissionWait,
		Router: cellRouter{n}, Outbound: newOutbound(), Log: logfilter.Logger(consoleTarget), Fatal: n.engineLost,
	}
}

// cellRouter finds the router when a call needs it: scripts are loaded before it exists.
type cellRouter struct{ n *Node }

func (r cellRouter) Cell(ctx context.Context, c id.Cell, name string) call.Service {
	if r.n.router == nil {
		return refuser{errStarting}
	}
	return r.n.router.Cell(ctx, c, name)
}

var errStarting = fmt.Errorf("this node is starting: %w", call.ErrNotStarted)

// engineLost ends a process whose JavaScript engine failed twice; a supervisor starts it anew.
func (n *Node) engineLost(cause error) {
	n.log.Error("the JavaScript engine failed a second time; this node stops and wants to be started again", "event", "engine_lost", "err", cause)
	n.Stop()
}

// fence stops everything at once and writes nothing.
func (n *Node) fence(lease.Event) {
	n.once.Do(func() { close(n.fenced) })
	if n.cells != nil {
		n.cells.Fence()
	}
	n.web.Close()
	if n.ops != nil {
		n.ops.Close()
	}
}

// Stop asks for a graceful end and returns.
func (n *Node) Stop() { n.stop() }

// Wait lets the node run until ctx ends or Stop is called, then ends it gracefully.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-n.stopping.Done():
	case <-n.fenced:
		return ErrFenced
	}
	return n.drain()
}

// drain finishes what has begun, hands every cell over, and ends the session.
func (n *Node) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), n.set.ShutdownTotal)
	defer cancel()
	n.log.Info("node drains", "event", "node_drains", "session", n.lease.Session())
	n.handler.SetHealth(ingress.Draining)
	n.router.SetDraining()
	if err := n.lease.Update(ctx, func(r *lease.Record) { r.Draining = true }); err != nil {
		n.log.Warn("others could not be told that this node drains", "event", "node_drains", "err", err)
	}
	err := n.web.Shutdown(ctx)
	if derr := n.cells.Drain(ctx); derr != nil {
		err = errors.Join(err, derr)
	}
	n.cells.Close()
	if lerr := n.lease.Close(ctx); lerr != nil {
		err = errors.Join(err, lerr)
	}
	watchdog.Deadline(0)
	n.release()
	if err != nil {
		return fmt.Errorf("the shutdown was not clean; nothing that was acknowledged is lost, other nodes take over when the lease has expired: %w", err)
	}
	n.log.Info("node stopped", "event", "node_stopped")
	return nil
}

// release lets go of everything that was opened.
func (n *Node) release() {
	n.stop()
	if n.apps != nil {
		n.apps.close(errors.New("the node stops"))
	}
	if n.peers != nil {
		n.peers.Close()
	}
	if n.ops != nil {
		n.ops.Close()
	}
	if n.web != nil {
		n.web.Close()
	}
	for i := len(n.closers) - 1; i >= 0; i-- {
		n.closers[i]()
	}
	if n.server != nil {
		n.server.Close()
	}
	if n.replica != nil {
		n.replica.Close()
	}
}

// PublicAddr and InternalAddr are where the listeners are.
func (n *Node) PublicAddr() string   { return n.public.Addr().String() }
func (n *Node) InternalAddr() string { return n.internal.Addr().String() }

// Store is the node's bucket, Runtime its JavaScript.
func (n *Node) Store() bucket.Store      { return n.store }
func (n *Node) Runtime() *worker.Runtime { return n.rt }

// Adopt takes over the newest deployment at once.
func (n *Node) Adopt(ctx context.Context) error { return n.watcher.Reload(ctx) }

// DefaultWorkDir is where a node keeps its files when nobody says otherwise: one
// directory of the user's for each bucket.
func DefaultWorkDir(bucket string) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no work directory: give --work-dir or CELLD_WATCH (%w)", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(bucket))
	return filepath.Join(base, "celld", hex.EncodeToString(sum[:8])), nil
}

// Clean deletes a directory of `celld dev`, unless a node uses it.
func Clean(home string) error {
	if _, err := os.Stat(filepath.Join(home, "work")); err == nil {
		w, err := lease.LockWorkDir(filepath.Join(home, "work"))
		if err != nil {
			return err
		}
		defer w.Unlock()
	}
	return os.RemoveAll(home)
}
