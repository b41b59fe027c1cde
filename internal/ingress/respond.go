package ingress

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/andybalholm/brotli"

	"celld/internal/call"
)

// copyBuffer is how much of a streamed body is read at once.
const copyBuffer = 64 << 10

// hopByHop headers describe one connection; net/http writes its own.
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Transfer-Encoding": true, "Upgrade": true, "Trailer": true, "Te": true,
}

func (h *Handler) respond(w http.ResponseWriter, r *http.Request, resp *call.Response) {
	if resp.Body != nil && resp.Body.Stream != nil {
		defer resp.Body.Stream.Close()
	}
	head := w.Header()
	copyHeader(head, resp.Header)
	if _, ok := head["Content-Type"]; !ok {
		head["Content-Type"] = nil // the server is not to guess one
	}
	if resp.Status < 200 {
		h.fail(w, r, errors.New("the handler answered with status "+strconv.Itoa(resp.Status)+", which only the server itself may send"))
		return
	}
	if bodyless(resp.Status) || resp.Body == nil {
		if resp.Body == nil && !bodyless(resp.Status) && r.Method != http.MethodHead {
			head.Set("Content-Length", "0")
		}
		w.WriteHeader(resp.Status)
		return
	}
	encode := encoder(head, resp)
	switch {
	case encode != nil:
		head.Del("Content-Length")
	case resp.Body.Stream == nil:
		head.Set("Content-Length", strconv.Itoa(len(resp.Body.Bytes)))
	case resp.Body.Length >= 0:
		head.Set("Content-Length", strconv.FormatInt(resp.Body.Length, 10))
	}
	w.WriteHeader(resp.Status)
	if r.Method == http.MethodHead {
		return
	}
	if err := writeBody(w, resp.Body, encode); err != nil {
		// The head is out: a cut connection is the only way left to say that the body is not whole.
		panic(http.ErrAbortHandler)
	}
}

func copyHeader(dst http.Header, fields []call.Field) {
	for _, f := range fields {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		if !hopByHop[name] {
			dst[name] = append(dst[name], f.Value)
		}
	}
}

func bodyless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// encoder is the compressor that the response's own Content-Encoding asks for:
// Workers answer with plain bytes and leave the coding to the server, unless
// they say encodeBody: "manual".
func encoder(head http.Header, resp *call.Response) func(io.Writer) flushCloser {
	if resp.EncodeManually {
		return nil
	}
	switch strings.ToLower(head.Get("Content-Encoding")) {
	case "gzip":
		return func(w io.Writer) flushCloser { return gzip.NewWriter(w) }
	case "br":
		return func(w io.Writer) flushCloser { return brotli.NewWriterLevel(w, 4) }
	}
	return nil
}

type flushCloser interface {
	io.WriteCloser
	Flush() error
}

func writeBody(w http.ResponseWriter, b *call.Body, encode func(io.Writer) flushCloser) error {
	var dst io.Writer = w
	var enc flushCloser
	if encode != nil {
		enc = encode(w)
		dst = enc
	}
	if b.Stream == nil {
		if _, err := dst.Write(b.Bytes); err != nil {
			return err
		}
	} else if err := stream(dst, enc, http.NewResponseController(w), b.Stream); err != nil {
		return err
	}
	if enc != nil {
		return enc.Close()
	}
	return nil
}

// stream passes on what has come as soon as it has come.
func stream(dst io.Writer, enc flushCloser, rc *http.ResponseController, src io.Reader) error {
	if err := rc.Flush(); err != nil {
		return err
	}
	buf := make([]byte, copyBuffer)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return werr
			}
			if enc != nil {
				if ferr := enc.Flush(); ferr != nil {
					return ferr
				}
			}
			if ferr := rc.Flush(); ferr != nil {
				return ferr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fail answers an error. What a client sees depends on the class of the error alone.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody is there to read an answer
	}
	code, text := status(err)
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
		if errors.Is(err, call.ErrOverloaded) {
			w.Header().Set("X-Celld-Overload", "cell")
		}
	}
	if h.o.Log != nil {
		h.o.Log.Error("request failed", "event", "request_failed", "method", r.Method, "path", r.URL.Path, "status", code, "err", err)
	}
	var ex *call.Exception
	if h.o.ShowErrors {
		text = err.Error()
		if errors.As(err, &ex) && ex.Stack != "" {
			text = ex.Stack
		}
	}
	http.Error(w, text, code)
}

// status maps an error to what its client is told.
func status(err error) (int, string) {
	switch {
	case errors.Is(err, call.ErrOverloaded):
		return http.StatusServiceUnavailable, "overloaded: too many requests wait for this object"
	case errors.Is(err, call.ErrFenced):
		return http.StatusServiceUnavailable, "route failed: this node is fenced"
	case errors.Is(err, call.ErrUnproven):
		return http.StatusServiceUnavailable, call.ErrUnproven.Error()
	case errors.Is(err, call.ErrNotStarted):
		return http.StatusServiceUnavailable, "route failed: the request was not started"
	}
	return http.StatusInternalServerError, "Internal Server Error"
}
