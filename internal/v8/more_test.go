package v8

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func rssKB() int {
	b, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmRSS:") {
			var n int
			fmt.Sscanf(strings.TrimSpace(l[6:]), "%d", &n)
			return n
		}
	}
	return 0
}

func TestALSEdges(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	must[Value](t)(iso.Eval(c, als, "als.js", 0))
	v := must[Value](t)(iso.Eval(c, `
	const s=new AsyncLocalStorage(); const out={};
	s.run("ctx", ()=>{
	  (async()=>{ await { then(r){ out.thenable=s.getStore(); r(1) } }; out.afterThenable=s.getStore(); })();
	  Promise.resolve().then(()=>{ out.then=s.getStore() });
	  Promise.reject(1).catch(()=>{ out.catch=s.getStore() });
	  Promise.resolve().finally(()=>{ out.finally=s.getStore() });
	  (async()=>{ for await (const x of (async function*(){ yield 1; await null; out.agen=s.getStore(); yield 2 })()) out.forawait=s.getStore(); })();
	  out.snap = AsyncLocalStorage.snapshot();
	  new Promise((_,rej)=>rej(2)).then(null,()=>{ out.rej=s.getStore() });
	  Promise.all([1,Promise.resolve(2)]).then(()=>{ out.all=s.getStore() });
	  (async()=>{ const {x}=await import("data-not-found").catch(e=>({x:1})); out.dynimport=s.getStore() })();
	});
	out.outside = s.getStore();
	new Promise(r=>{ let n=0; (async()=>{ while(n++<30) await null; r() })() }).then(()=>{ out.snapshot = out.snap(()=>s.getStore()); delete out.snap; return JSON.stringify(out) })`, "e.js", 0))
	t.Log(v)
	if strings.Count(v.String(), `"ctx"`) != 11 {
		t.Error("lost context somewhere", strings.Count(v.String(), `"ctx"`))
	}
}

func TestSnapshotAfterIsolates(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	stop := make(chan bool)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			default:
				iso.Eval(c, "{let s=0; for(let i=0;i<1e5;i++) s+=i}", "b.js", 0)
			}
		}
	}()
	for k := 0; k < 5; k++ {
		snap, err := CreateSnapshot("globalThis.x="+fmt.Sprint(k), "", true)
		if err != nil {
			t.Fatal(err)
		}
		i2 := New(Options{Snapshot: snap})
		c2 := i2.NewContext(false)
		if v := must[Value](t)(i2.Eval(c2, "x", "s.js", 0)); int(v.Num) != k {
			t.Fatal(v)
		}
		i2.Close()
		snap.Free()
	}
	close(stop)
	wg.Wait()
}

func TestContextLeak(t *testing.T) {
	iso := newIso(t, Options{HeapLimit: 128 << 20})
	for r := 0; r < 3; r++ {
		for k := 0; k < 1000; k++ {
			c := iso.NewContext(k%2 == 0)
			iso.Eval(c, "globalThis.a=new Array(1000).fill({}); Promise.resolve().then(()=>1); 0", "l.js", 0)
			iso.FreeContext(c)
		}
		iso.GC(2)
		s := iso.Stats()
		t.Logf("after %d contexts: heap %d KB, native contexts %d, detached %d, RSS %d MB", (r+1)*1000, s.Used>>10, s.Contexts, s.Detached, rssKB()>>10)
	}
}

func TestExecAfterInit(t *testing.T) {
	t0 := time.Now()
	out, err := exec.Command("/bin/echo", "hi").Output()
	t.Log(string(out), err, time.Since(t0))
}

func TestLeftoverMicrotasks(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	must[Value](t)(iso.Eval(c, "globalThis.ran=0; 0", "a.js", 0))
	go func() { time.Sleep(30 * time.Millisecond); iso.Terminate() }()
	_, err := iso.Eval(c, "Promise.resolve().then(()=>{ran++}); for(;;);", "a.js", 0)
	v := must[Value](t)(iso.Eval(c, "0", "b.js", 0))
	v = must[Value](t)(iso.Eval(c, "ran", "b.js", 0))
	if v.Num == 1 {
		t.Error("microtask queued by the terminated turn ran in a later turn", err)
	}
}

func TestFloodIsolateChurn(t *testing.T) {
	snap, _ := CreateSnapshot(prelude(100), "", true)
	r0 := 0
	for k := 0; k < 300; k++ {
		i := New(Options{Snapshot: snap, HeapLimit: 64 << 20})
		c := i.NewContext(false)
		i.Eval(c, "new __prelude.Class1(1).sum()", "a.js", 0)
		i.Close()
		if k == 50 {
			r0 = rssKB()
		}
	}
	runtime.GC()
	t.Logf("RSS after 50 isolates %d MB, after 300 create/dispose cycles %d MB", r0>>10, rssKB()>>10)
}

func BenchmarkHostChannelHop(b *testing.B) {
	iso := newIso(b, Options{})
	c := iso.NewContext(false)
	ch := make(chan chan int)
	go func() {
		for r := range ch {
			r <- 1
		}
	}()
	r := make(chan int)
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		ch <- r
		<-r
		return nil
	}
	f := must[Value](b)(iso.Eval(c, "(n)=>{for(let i=0;i<n;i++)__host.call(1)}", "h.js", WantHandle)).ID()
	b.ResetTimer()
	iso.Call(c, f, 0, N(float64(b.N)))
	close(ch)
}

func BenchmarkNewArrayBuffer1K(b *testing.B) {
	iso := newIso(b, Options{})
	c := iso.NewContext(false)
	f := must[Value](b)(iso.Eval(c, "(n)=>{for(let i=0;i<n;i++) new ArrayBuffer(1024)}", "h.js", WantHandle)).ID()
	b.ResetTimer()
	iso.Call(c, f, 0, N(float64(b.N)))
}

func BenchmarkGoFillsBuffer1K(b *testing.B) {
	iso := newIso(b, Options{})
	c := iso.NewContext(false)
	src := make([]byte, 1024)
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		copy(args[0].Raw(), src)
		ret.Num(float64(len(src)))
		return nil
	}
	f := must[Value](b)(iso.Eval(c, "(n)=>{const u=new ArrayBuffer(1024); for(let i=0;i<n;i++) __host.call(1,u)}", "h.js", WantHandle)).ID()
	b.ResetTimer()
	iso.Call(c, f, 0, N(float64(b.N)))
}

func BenchmarkCallWithBytes(b *testing.B) {
	iso := newIso(b, Options{})
	c := iso.NewContext(false)
	f := must[Value](b)(iso.Eval(c, "(x)=>x.byteLength", "h.js", WantHandle)).ID()
	p := make([]byte, 1024)
	for b.Loop() {
		iso.CallBytes(c, f, 0, Bytes, p)
	}
}

func BenchmarkCallWithString(b *testing.B) {
	iso := newIso(b, Options{})
	c := iso.NewContext(false)
	f := must[Value](b)(iso.Eval(c, "(x)=>x.length", "h.js", WantHandle)).ID()
	p := []byte(strings.Repeat("x", 100))
	for b.Loop() {
		iso.CallBytes(c, f, 0, Str, p)
	}
}

func BenchmarkLockerMigrate(b *testing.B) {
	iso := newIso(b, Options{})
	c := iso.NewContext(false)
	f := must[Value](b)(iso.Eval(c, "()=>1", "h.js", WantHandle)).ID()
	b.Run("same-thread", func(b *testing.B) {
		for b.Loop() {
			iso.Call(c, f, 0)
		}
	})
	b.Run("two-threads-alternating", func(b *testing.B) {
		var wg sync.WaitGroup
		n := b.N
		for g := 0; g < 2; g++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				runtime.LockOSThread()
				for k := 0; k < n/2; k++ {
					iso.Lock()
					iso.Call(c, f, 0)
					iso.Unlock()
				}
			}()
		}
		wg.Wait()
	})
}
