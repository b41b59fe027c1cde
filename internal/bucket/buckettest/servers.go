package buckettest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/open"
)

// The servers, by the versions that were qualified.
const (
	versityVersion = "v1.8.0"
	gcsVersion     = "v1.56.1"
	azuriteVersion = "3.37.0"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 10 * time.Second
	startTries   = 5 // a free port can be taken by somebody else before the server binds it
)

// Open opens a bucket in this process, with the environment that a server came with.
func Open(t testing.TB, url string, env []string) bucket.Store {
	t.Helper()
	setenv(t, env)
	s, err := open.Bucket(t.Context(), url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close(s) })
	return s
}

func setenv(t testing.TB, env []string) {
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

// VersityGW starts an S3 server with an empty bucket. env holds S3_ENDPOINT and
// credentials: append it to the environment of a process that uses the URL.
func VersityGW(t testing.TB) (url string, env []string) {
	t.Helper()
	program := tool(t, "versitygw", versityVersion,
		goInstall("github.com/versity/versitygw/cmd/versitygw@"+versityVersion), "versitygw")
	const access, secret = "celld-test", "celld-test-secret"
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "celld"), 0o777); err != nil {
		t.Fatal(err)
	}
	address := startOnFreePort(t, "versitygw", func(address string) *exec.Cmd {
		cmd := exec.Command(program, "--quiet", "--port", address, "--health", "/health", "posix", root)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+access, "ROOT_SECRET_KEY="+secret)
		return cmd
	})
	return "s3://celld", []string{
		"S3_ENDPOINT=http://" + address, "AWS_ACCESS_KEY_ID=" + access, "AWS_SECRET_ACCESS_KEY=" + secret,
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

// FakeGCS starts a Google Cloud Storage server with an empty bucket.
func FakeGCS(t testing.TB) (url string, env []string) {
	t.Helper()
	program := tool(t, "fake-gcs-server", gcsVersion,
		goInstall("github.com/fsouza/fake-gcs-server@"+gcsVersion), "fake-gcs-server")
	address := startOnFreePort(t, "fake-gcs-server", func(address string) *exec.Cmd {
		host, port, _ := net.SplitHostPort(address)
		return exec.Command(program, "-scheme", "http", "-host", host, "-port", port,
			"-external-url", "http://"+address, "-public-host", address, "-backend", "memory", "-log-level", "error")
	})
	res, err := http.Post("http://"+address+"/storage/v1/b?project=test", "application/json", strings.NewReader(`{"name":"celld"}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("fake-gcs-server: create the bucket: %s", res.Status)
	}
	return "gs://celld", []string{"STORAGE_EMULATOR_HOST=http://" + address}
}

// Azurite's one account; both values are public constants of its manual.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite starts an Azure Blob Storage server with an empty container.
func Azurite(t testing.TB) (url string, env []string) {
	t.Helper()
	program := tool(t, "azurite", azuriteVersion, npmInstall("azurite@"+azuriteVersion), "node_modules/.bin/azurite-blob")
	cmd := exec.Command(program, "--blobHost", "127.0.0.1", "--blobPort", "0",
		"--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
	cmd.Dir = t.TempDir()
	p := start(t, "azurite", cmd)
	where := p.await(t, regexp.MustCompile(`listens on (http://[0-9.:]+)`))
	env = []string{"AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=http;AccountName=" + azuriteAccount +
		";AccountKey=" + azuriteKey + ";BlobEndpoint=" + where + "/" + azuriteAccount + ";"}
	createContainer(t, env[0], "celld")
	return "az://celld", env
}

// startOnFreePort starts a server that cannot choose a port itself, and waits
// until it takes connections.
func startOnFreePort(t testing.TB, name string, command func(address string) *exec.Cmd) string {
	t.Helper()
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		p := start(t, name, command(address))
		if err = p.dialable(address); err == nil {
			return address
		}
		p.stop()
		if try == startTries {
			t.Fatalf("%s: %v\n%s", name, err, p.output.String())
		}
	}
}

// process is a server that ends with its test.
type process struct {
	cmd    *exec.Cmd
	output lockedBuffer
	ended  chan struct{}
}

func start(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		unavailable(t, name, err)
	}
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *process) dialable(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended: %v", p.cmd.ProcessState)
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// await waits for a line of output and returns its first group.
func (p *process) await(t testing.TB, line *regexp.Regexp) string {
	t.Helper()
	deadline := time.After(startTimeout)
	for {
		if m := line.FindStringSubmatch(p.output.String()); m != nil {
			return m[1]
		}
		select {
		case <-p.ended:
			t.Fatalf("%s ended:\n%s", p.cmd.Path, p.output.String())
		case <-deadline:
			t.Fatalf("%s did not say %s:\n%s", p.cmd.Path, line, p.output.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
