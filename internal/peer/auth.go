package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"sync"
	"time"

	"celld/internal/bucket"
	"celld/internal/id"
)

// AuthKey is where the fleet's keys live. Whoever can read it can be a peer:
// access to the bucket is what membership of a fleet means.
const AuthKey = "fleet/peer-auth.json"

const (
	authVersion = 1
	// maxKeys are active at once: the one that signs, and the one before it, so that a rotation cuts nobody off.
	maxKeys = 2
	// caLife is how long a fleet key may sign.
	caLife = 10 * 365 * 24 * time.Hour
	// skew is how far the clocks of two nodes may differ before a fresh certificate is refused.
	skew = 10 * time.Minute
	// certLife outlives any session that renews its certificate at half of it.
	certLife = 30 * 24 * time.Hour
	// reloadInterval is how often an unknown signer may make a node read the fleet's keys again.
	reloadInterval = time.Second
)

// authRecord is fleet/peer-auth.json. The last key signs; all are trusted.
type authRecord struct {
	V    int       `json:"v"`
	Keys []fleetCA `json:"keys"`
}

type fleetCA struct {
	Created int64  `json:"created_ms"`
	Cert    []byte `json:"cert"` // DER
	Key     []byte `json:"key"`  // PKCS #8 DER
}

// Auth proves sessions of one fleet to each other.
type Auth struct {
	store   bucket.Store
	session id.Session

	mu     sync.RWMutex
	pool   *x509.CertPool
	cert   *tls.Certificate
	loaded time.Time

	reloadInterval time.Duration // a test sets it to zero
}

// OpenAuth reads the fleet's keys, creating them if this is its first node,
// and makes this session's certificate.
func OpenAuth(ctx context.Context, store bucket.Store, session id.Session) (*Auth, error) {
	a := &Auth{store: store, session: session, reloadInterval: reloadInterval}
	return a, a.Reload(ctx)
}

// Reload takes over the keys that stand in the bucket now.
func (a *Auth) Reload(ctx context.Context) error {
	rec, _, err := readAuth(ctx, a.store)
	if errors.Is(err, bucket.ErrNotFound) {
		rec, err = createAuth(ctx, a.store)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", AuthKey, err)
	}
	pool := x509.NewCertPool()
	for _, k := range rec.Keys {
		ca, err := x509.ParseCertificate(k.Cert)
		if err != nil {
			return fmt.Errorf("%s holds a certificate that cannot be read: %w", AuthKey, err)
		}
		pool.AddCert(ca)
	}
	cert, err := rec.Keys[len(rec.Keys)-1].issue(a.session)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.pool, a.cert, a.loaded = pool, cert, time.Now()
	a.mu.Unlock()
	return nil
}

// RotateAuth adds a new signing key and drops the oldest one. Nodes that
// reload in between trust both.
func RotateAuth(ctx context.Context, store bucket.Store) error {
	rec, version, err := readAuth(ctx, store)
	if err != nil {
		return fmt.Errorf("read %s: %w", AuthKey, err)
	}
	key, err := newCA()
	if err != nil {
		return err
	}
	rec.Keys = append(rec.Keys, key)
	if len(rec.Keys) > maxKeys {
		rec.Keys = rec.Keys[len(rec.Keys)-maxKeys:]
	}
	body, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if _, err := store.Swap(ctx, AuthKey, body, version); err != nil {
		return fmt.Errorf("write %s: %w; read it again before another rotation", AuthKey, err)
	}
	return nil
}

func readAuth(ctx context.Context, store bucket.Store) (*authRecord, bucket.Version, error) {
	body, version, err := store.Get(ctx, AuthKey)
	if err != nil {
		return nil, "", err
	}
	var rec authRecord
	if err := json.Unmarshal(body, &rec); err != nil {
		return nil, "", fmt.Errorf("not valid JSON: %w", err)
	}
	if rec.V != authVersion {
		return nil, "", fmt.Errorf("version %d is not one this celld knows: upgrade it", rec.V)
	}
	if len(rec.Keys) == 0 {
		return nil, "", errors.New("no keys in it")
	}
	return &rec, version, nil
}

// createAuth writes the first key; the node that loses the race takes the winner's.
func createAuth(ctx context.Context, store bucket.Store) (*authRecord, error) {
	key, err := newCA()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(authRecord{V: authVersion, Keys: []fleetCA{key}})
	if err != nil {
		return nil, err
	}
	_, werr := store.Create(ctx, AuthKey, body)
	// Whether the write was applied, refused or lost on the way: what stands there now is the fleet's key.
	rec, _, err := readAuth(ctx, store)
	if err != nil {
		return nil, errors.Join(werr, err)
	}
	return rec, nil
}

func newCA() (fleetCA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fleetCA{}, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "celld fleet"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return fleetCA{}, err
	}
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	return fleetCA{Created: now.UnixMilli(), Cert: der, Key: pk}, err
}

// issue makes the certificate that says: I am this session.
func (k fleetCA) issue(s id.Session) (*tls.Certificate, error) {
	ca, err := x509.ParseCertificate(k.Cert)
	if err != nil {
		return nil, fmt.Errorf("%s holds a certificate that cannot be read: %w", AuthKey, err)
	}
	caKey, err := x509.ParsePKCS8PrivateKey(k.Key)
	if err != nil {
		return nil, fmt.Errorf("%s holds a key that cannot be read: %w", AuthKey, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "celld node"}, URIs: []*url.URL{sessionURI(s)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(certLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n
}

func sessionURI(s id.Session) *url.URL {
	return &url.URL{Scheme: "celld", Host: "session", Path: "/" + string(s)}
}

// sessionOf is the session that a verified certificate speaks for.
func sessionOf(cert *x509.Certificate) (id.Session, error) {
	for _, u := range cert.URIs {
		if u.Scheme == "celld" && u.Host == "session" && len(u.Path) > 1 {
			return id.Session(u.Path[1:]), nil
		}
	}
	return "", errors.New("the peer's certificate names no session")
}

// verify checks a chain against the fleet's keys of this moment.
func (a *Auth) verify(raw [][]byte) (id.Session, error) {
	if len(raw) == 0 {
		return "", errors.New("the peer showed no certificate")
	}
	cert, err := x509.ParseCertificate(raw[0])
	if err != nil {
		return "", fmt.Errorf("the peer's certificate cannot be read: %w", err)
	}
	err = a.trusts(cert)
	if err != nil && a.reloadOnce() {
		err = a.trusts(cert)
	}
	if err != nil {
		return "", fmt.Errorf("the peer's certificate is not of this fleet: %w", err)
	}
	return sessionOf(cert)
}

func (a *Auth) trusts(cert *x509.Certificate) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, err := cert.Verify(x509.VerifyOptions{Roots: a.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// reloadOnce looks whether an unknown signer is a key that was added since;
// strangers cannot make it do so more often than once in reloadInterval.
func (a *Auth) reloadOnce() bool {
	a.mu.Lock()
	due := time.Since(a.loaded) >= a.reloadInterval
	if due {
		a.loaded = time.Now()
	}
	a.mu.Unlock()
	if !due {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return a.Reload(ctx) == nil
}

func (a *Auth) certificate() *tls.Certificate {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.cert
}

// clientTLS dials exactly one session ("" means any of the fleet, and tells which through found).
func (a *Auth) clientTLS(want id.Session, found *id.Session) *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		NextProtos:           protocolNames(),
		InsecureSkipVerify:   true, // sessions are not host names: verify does the checking
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.certificate(), nil },
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			got, err := a.verify(raw)
			if err != nil {
				return err
			}
			if want != "" && got != want {
				return fmt.Errorf("%w: dialled session %s, session %s answered", errWrongSession, want, got)
			}
			if found != nil {
				*found = got
			}
			return nil
		},
	}
}

var errWrongSession = errors.New("another session runs at the peer's address")

func (a *Auth) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:            tls.VersionTLS13,
		NextProtos:            protocolNames(),
		ClientAuth:            tls.RequireAnyClientCert,
		GetCertificate:        func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate(), nil },
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error { _, err := a.verify(raw); return err },
	}
}

// The tunnel's protocol versions this celld speaks. A lease carries the same range.
const (
	MinProtocol = 1
	MaxProtocol = 1
)

// protocolNames are the ALPN names, newest first.
func protocolNames() []string {
	var names []string
	for v := MaxProtocol; v >= MinProtocol; v-- {
		names = append(names, fmt.Sprintf("celld-peer/%d", v))
	}
	return names
}
