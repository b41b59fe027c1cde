// Thin V8 binding. See binding.h for the ABI.
#ifdef __has_include
#if !__has_include("v8.h")
#error "V8 headers not found: run `go generate ./internal/v8` once (links the headers of github.com/tommie/v8go out of the module cache)"
#endif
#endif
#include "binding.h"
#include "libplatform/libplatform.h"
#include "v8-inspector.h"
#include "v8-wasm-trap-handler-posix.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <v8.h>

// Exported by Go (declared here by hand so that this file needs no
// _cgo_export.h and can be compiled and linted on its own).
extern "C" {
int wvGoHost(uint64_t token, int ctx, uint32_t op, uint32_t promise, wv_val* args, int n, wv_val* ret);
int wvGoResolve(uint64_t token, int ctx, const char* spec, size_t n, const char* ref, size_t rn, int dynamic);
void wvGoUnhandled(uint64_t token, int ctx, const char* msg, size_t n);
void wvGoWake(uint64_t token);
void wvGoInspector(uint64_t token, const char* msg, size_t n);
void wvGoFatal(uint64_t token, const char* msg, size_t n);
void wvGoPause(uint64_t token);
}

using namespace v8;

size_t NearHeapLimit(void*, size_t, size_t);

namespace {

template <class T> void Ignore(T&&) {}
inline uint64_t Addr(const void* p) { return reinterpret_cast<uint64_t>(p); }

std::unique_ptr<Platform> g_default_platform;
ArrayBuffer::Allocator* g_allocator;
bool g_park = true;
std::atomic<long> g_threads_seen{0};
constexpr int kCtxIndex = 1;  // embedder data slot (0 is the debugger's)

struct Delayed {
  double due;
  std::unique_ptr<Task> task;
};

double NowSec() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec + ts.tv_nsec * 1e-9;
}

// Foreground task runner of one isolate: V8 posts (from its worker threads too),
// Go is woken and drains the queue through wv_iso_pump while it owns the isolate.
class FgRunner : public TaskRunner {
 public:
  std::mutex mu;
  std::deque<std::unique_ptr<Task>> q;
  std::vector<Delayed> delayed;
  uint64_t token = 0;
  bool dead = false;

  bool IdleTasksEnabled() override { return false; }
  bool NonNestableTasksEnabled() const override { return true; }
  bool NonNestableDelayedTasksEnabled() const override { return true; }

 protected:
  void Put(std::unique_ptr<Task> t) {
    bool wake;
    {
      std::lock_guard<std::mutex> l(mu);
      if (dead) return;
      wake = q.empty();
      q.push_back(std::move(t));
    }
    if (wake && token) wvGoWake(token);
  }
  void PutDelayed(std::unique_ptr<Task> t, double d) {
    {
      std::lock_guard<std::mutex> l(mu);
      if (dead) return;
      delayed.push_back({NowSec() + d, std::move(t)});
    }
    if (token) wvGoWake(token);
  }
  void PostTaskImpl(std::unique_ptr<Task> t, const SourceLocation&) override { Put(std::move(t)); }
  void PostNonNestableTaskImpl(std::unique_ptr<Task> t, const SourceLocation&) override { Put(std::move(t)); }
  void PostDelayedTaskImpl(std::unique_ptr<Task> t, double d, const SourceLocation&) override { PutDelayed(std::move(t), d); }
  void PostNonNestableDelayedTaskImpl(std::unique_ptr<Task> t, double d, const SourceLocation&) override { PutDelayed(std::move(t), d); }
};

// Platform: worker threads and jobs come from V8's default platform; foreground
// runners are ours; no ThreadIsolatedAllocator, because PKU-protected JIT pages
// are only accessible from descendants of the initialising thread and Go's Ms
// are not that.
class Plat : public Platform {
 public:
  std::mutex mu;
  std::unordered_map<Isolate*, std::shared_ptr<FgRunner>> runners;

  std::shared_ptr<FgRunner> Get(Isolate* i) {
    std::lock_guard<std::mutex> l(mu);
    auto& r = runners[i];
    if (!r) r = std::make_shared<FgRunner>();
    return r;
  }
  void Drop(Isolate* i) {
    std::shared_ptr<FgRunner> r;
    {
      std::lock_guard<std::mutex> l(mu);
      auto it = runners.find(i);
      if (it == runners.end()) return;
      r = it->second;
      runners.erase(it);
    }
    std::deque<std::unique_ptr<Task>> q;
    std::vector<Delayed> d;
    {
      std::lock_guard<std::mutex> l(r->mu);
      r->dead = true;
      q.swap(r->q);
      d.swap(r->delayed);
    }
  }
  PageAllocator* GetPageAllocator() override { return g_default_platform->GetPageAllocator(); }
  ThreadIsolatedAllocator* GetThreadIsolatedAllocator() override { return nullptr; }
  void OnCriticalMemoryPressure() override { g_default_platform->OnCriticalMemoryPressure(); }
  int NumberOfWorkerThreads() override { return g_default_platform->NumberOfWorkerThreads(); }
  std::shared_ptr<TaskRunner> GetForegroundTaskRunner(Isolate* i, TaskPriority) override { return Get(i); }
  bool IdleTasksEnabled(Isolate*) override { return false; }
  double MonotonicallyIncreasingTime() override { return g_default_platform->MonotonicallyIncreasingTime(); }
  double CurrentClockTimeMillis() override { return g_default_platform->CurrentClockTimeMillis(); }
  TracingController* GetTracingController() override { return g_default_platform->GetTracingController(); }

 protected:
  std::unique_ptr<JobHandle> CreateJobImpl(TaskPriority p, std::unique_ptr<JobTask> t, const SourceLocation& l) override {
    return g_default_platform->CreateJob(p, std::move(t), l);
  }
  void PostTaskOnWorkerThreadImpl(TaskPriority p, std::unique_ptr<Task> t, const SourceLocation& l) override {
    g_default_platform->PostTaskOnWorkerThread(p, std::move(t), l);
  }
  void PostDelayedTaskOnWorkerThreadImpl(TaskPriority p, std::unique_ptr<Task> t, double d, const SourceLocation& l) override {
    g_default_platform->PostDelayedTaskOnWorkerThread(p, std::move(t), d, l);
  }
};
Plat* g_plat;

// ArrayBuffer memory is not part of the V8 heap limit: cap it per isolate. The
// memory itself has to come from V8's allocator (it must live in the sandbox).
// V8's sandbox allocator takes ~2 us a block, so small blocks are kept in size
// classes on a free list (process-wide; frees may come from V8's GC threads).
class SmallBlocks {
 public:
  static constexpr size_t kMax = 64 << 10;
  static int Class(size_t n) {  // 4 steps per power of two, from 64 bytes
    if (n <= 64) return 0;
    int lg = 63 - __builtin_clzll(n - 1);  // 2^lg <= n-1
    return (lg - 6) * 4 + static_cast<int>((n - 1) >> (lg - 2)) - 4 + 1;
  }
  static size_t Size(int c) {
    if (c == 0) return 64;
    c--;
    return (size_t(64) << (c / 4)) / 4 * (5 + c % 4);
  }
  void* Get(size_t n) {
    int c = Class(n);
    {
      std::lock_guard<std::mutex> l(mu_[c]);
      if (void* p = head_[c]) {
        head_[c] = *static_cast<void**>(p);
        held_.fetch_sub(Size(c), std::memory_order_relaxed);
        return p;
      }
    }
    return g_allocator->AllocateUninitialized(Size(c));
  }
  void Put(void* p, size_t n) {
    int c = Class(n);
    size_t sz = Size(c);
    if (held_.load(std::memory_order_relaxed) > (32u << 20)) { g_allocator->Free(p, sz); return; }
    held_.fetch_add(sz, std::memory_order_relaxed);
    std::lock_guard<std::mutex> l(mu_[c]);
    *static_cast<void**>(p) = head_[c];
    head_[c] = p;
  }

 private:
  std::mutex mu_[48];
  void* head_[48] = {};
  std::atomic<size_t> held_{0};
};
SmallBlocks g_small;

class CapAllocator : public ArrayBuffer::Allocator {
 public:
  explicit CapAllocator(size_t cap) : cap_(cap) {}
  void* Allocate(size_t n) override {
    if (!Take(n)) return nullptr;
    if (n > SmallBlocks::kMax) return Got(g_allocator->Allocate(n), n);
    void* p = Got(g_small.Get(n), n);
    if (p) memset(p, 0, n);
    return p;
  }
  void* AllocateUninitialized(size_t n) override {
    if (!Take(n)) return nullptr;
    return Got(n > SmallBlocks::kMax ? g_allocator->AllocateUninitialized(n) : g_small.Get(n), n);
  }
  void Free(void* p, size_t n) override {
    if (n > SmallBlocks::kMax) g_allocator->Free(p, n);
    else g_small.Put(p, n);
    used_.fetch_sub(n, std::memory_order_relaxed);
  }
  size_t MaxAllocationSize() const override { return cap_ ? cap_ : g_allocator->MaxAllocationSize(); }
  PageAllocator* GetPageAllocator() override { return g_allocator->GetPageAllocator(); }

 private:
  bool Take(size_t n) {
    size_t u = used_.fetch_add(n, std::memory_order_relaxed);
    if (cap_ && u + n > cap_) { used_.fetch_sub(n, std::memory_order_relaxed); return false; }
    return true;
  }
  void* Got(void* p, size_t n) {
    if (!p) used_.fetch_sub(n, std::memory_order_relaxed);
    return p;
  }
  size_t cap_;
  std::atomic<size_t> used_{0};
};

struct Ctx {
  Global<Context> ctx;
  std::unique_ptr<MicrotaskQueue> mtq;
  std::vector<Global<Module>> mods;
  std::vector<std::string> mod_names;
  std::unordered_multimap<int, int> by_hash;              // identity hash -> module index
  std::unordered_map<int, Global<Object>> synth_exports;  // module index -> exports object
  bool live = true;
};

struct Insp;

}  // namespace

struct wv_iso {
  Isolate* iso = nullptr;
  uint64_t token = 0;
  std::vector<std::unique_ptr<Ctx>> ctxs;
  std::vector<Global<Value>> handles;
  std::vector<uint32_t> free_handles;
  std::unordered_map<uint32_t, Global<Promise::Resolver>> resolvers;
  uint32_t next_resolver = 0;
  struct Rej { Global<Promise> p; Global<Value> v; int ctx; };
  std::vector<Rej> rejections;
  std::string ret, err;
  std::vector<uint8_t*> ret_owned;
  char scratch[1 << 16];  // return buffer offered to Go host callbacks
  size_t heap_limit = 0, buffer_limit = 0;
  std::atomic<uint32_t> oom_hits{0};
  bool oom_now = false;
  bool compiling = false;  // Go itself compiles a wasm module
  Ctx* terminated_in = nullptr;  // outermost turn was terminated: drop its queued microtasks
  // turn bookkeeping for the CPU watchdog
  std::mutex tmu;
  int depth = 0;
  bool running = false;
  clockid_t clk = 0;
  std::atomic<uint64_t> turn{0};
  size_t stack_bytes = 0;
  std::shared_ptr<FgRunner> runner;
  std::unique_ptr<Insp> insp;
  StartupData sd{nullptr, 0};
  Global<Function> make_error;  // (class, message) -> error, from the runtime
  struct Held { Locker* l; };
  Held held{nullptr};
};

struct wv_wasm { CompiledWasmModule m; };

namespace {

thread_local clockid_t t_clk;
thread_local bool t_clk_ok = false;

clockid_t ThreadClock() {
  if (!t_clk_ok) {
    pthread_getcpuclockid(pthread_self(), &t_clk);
    t_clk_ok = true;
    g_threads_seen++;
  }
  return t_clk;
}

thread_local uintptr_t t_stack_low = 0;
uintptr_t StackLow() {
  if (!t_stack_low) {
    pthread_attr_t a;
    void* p = nullptr;
    size_t n = 0;
    if (pthread_getattr_np(pthread_self(), &a) == 0) {
      pthread_attr_getstack(&a, &p, &n);
      pthread_attr_destroy(&a);
    }
    t_stack_low = reinterpret_cast<uintptr_t>(p) + 1;
  }
  return t_stack_low;
}

void RunMicrotasks(wv_iso* w, Ctx* x) {
  if (x->mtq) x->mtq->PerformCheckpoint(w->iso);
  else w->iso->PerformMicrotaskCheckpoint();
}

// Scope of one entry from Go.
struct Enter {
  wv_iso* w;
  Locker lk;
  Isolate::Scope is;
  HandleScope hs;
  explicit Enter(wv_iso* w) : w(w), lk(w->iso), is(w->iso), hs(w->iso) {
    if (w->depth++ == 0) {
      // V8 assumes that 984 KB of stack are left. Bound that by what the thread
      // really has (ulimit -s decides the stack of Go's cgo threads).
      char here;
      uintptr_t sp = reinterpret_cast<uintptr_t>(&here), want = w->stack_bytes ? w->stack_bytes : size_t(984) << 10;
      uintptr_t lim = sp - want, low = StackLow() + (128 << 10);
      w->iso->SetStackLimit(lim < low ? low : lim);
      std::lock_guard<std::mutex> l(w->tmu);
      w->clk = ThreadClock();
      w->running = true;
      w->turn.fetch_add(1, std::memory_order_relaxed);
    }
  }
  ~Enter() {
    if (--w->depth == 0) {
      {
        std::lock_guard<std::mutex> l(w->tmu);
        w->running = false;
      }
      if (w->terminated_in) {
        // Jobs queued by the killed turn must not run inside somebody else's turn.
        // A checkpoint under termination makes V8 discard the queue.
        Ctx* x = w->terminated_in;
        w->terminated_in = nullptr;
        w->iso->CancelTerminateExecution();
        w->iso->TerminateExecution();
        {
          Context::Scope cs(x->ctx.Get(w->iso));
          TryCatch tc(w->iso);
          RunMicrotasks(w, x);
        }
        w->iso->CancelTerminateExecution();
        w->rejections.clear();
      }
      if (w->iso->IsExecutionTerminating()) w->iso->CancelTerminateExecution();
      if (w->oom_now) {
        w->oom_now = false;
        w->iso->LowMemoryNotification();
        w->iso->RemoveNearHeapLimitCallback(NearHeapLimit, w->heap_limit);
        w->iso->AddNearHeapLimitCallback(NearHeapLimit, w);
      }
    }
  }
};

Local<String> Str(Isolate* i, const char* s, size_t n) {
  return String::NewFromUtf8(i, s, NewStringType::kNormal, static_cast<int>(n)).FromMaybe(String::Empty(i));
}
Local<String> Sym(Isolate* i, const char* s) {
  return String::NewFromUtf8(i, s, NewStringType::kInternalized).ToLocalChecked();
}

void AppendUtf8(Isolate* i, Local<String> s, std::string* out) {
  size_t n = s->Utf8LengthV2(i), off = out->size();
  out->resize(off + n);
  s->WriteUtf8V2(i, &(*out)[off], n, String::WriteFlags::kReplaceInvalidUtf8);
}

uint32_t NewHandle(wv_iso* w, Local<Value> v) {
  if (!w->free_handles.empty()) {
    uint32_t h = w->free_handles.back();
    w->free_handles.pop_back();
    w->handles[h].Reset(w->iso, v);
    return h;
  }
  w->handles.emplace_back(w->iso, v);
  return static_cast<uint32_t>(w->handles.size() - 1);
}

int CtxId(Local<Context> c) {
  return static_cast<int>(reinterpret_cast<intptr_t>(c->GetAlignedPointerFromEmbedderData(kCtxIndex)) >> 1);
}

// ---- structured clone ------------------------------------------------------
class SerDelegate : public ValueSerializer::Delegate {
 public:
  explicit SerDelegate(Isolate* i) : i_(i) {}
  void ThrowDataCloneError(Local<String> m) override {
    Local<Value> e = Exception::Error(m);
    Ignore(e.As<Object>()->Set(i_->GetCurrentContext(), Sym(i_, "name"), Sym(i_, "DataCloneError")));
    i_->ThrowException(e);
  }
 private:
  Isolate* i_;
};

bool Serialize(Isolate* i, Local<Context> c, Local<Value> v, std::pair<uint8_t*, size_t>* out) {
  SerDelegate d(i);
  ValueSerializer s(i, &d);
  s.WriteHeader();
  bool ok = false;
  if (!s.WriteValue(c, v).To(&ok) || !ok) {
    auto p = s.Release();
    free(p.first);
    return false;
  }
  *out = s.Release();
  return true;
}
MaybeLocal<Value> Deserialize(Isolate* i, Local<Context> c, const uint8_t* p, size_t n) {
  ValueDeserializer d(i, p, n);
  bool ok = false;
  if (!d.ReadHeader(c).To(&ok) || !ok) {
    i->ThrowException(Exception::Error(Sym(i, "bad clone header")));
    return {};
  }
  return d.ReadValue(c);
}

// ---- value conversion ------------------------------------------------------
MaybeLocal<Value> FromVal(wv_iso* w, Local<Context> c, const wv_val& v) {
  Isolate* i = w->iso;
  switch (v.tag) {
    case WV_NULL: return Null(i);
    case WV_FALSE: return False(i);
    case WV_TRUE: return True(i);
    case WV_NUM: return Number::New(i, v.num);
    case WV_STR: {
      MaybeLocal<String> s = String::NewFromUtf8(i, reinterpret_cast<const char*>(v.ptr), NewStringType::kNormal, static_cast<int>(v.len));
      Local<String> l;
      if (!s.ToLocal(&l)) return {};
      return l;
    }
    case WV_BYTES: {
      Local<ArrayBuffer> ab;
      if (!ArrayBuffer::MaybeNew(i, v.len, BackingStoreInitializationMode::kUninitialized).ToLocal(&ab)) {
        i->ThrowException(Exception::RangeError(Sym(i, "out of memory")));
        return {};
      }
      if (v.len) memcpy(ab->Data(), reinterpret_cast<const void*>(v.ptr), v.len);
      return ab;
    }
    case WV_CLONE: return Deserialize(i, c, reinterpret_cast<const uint8_t*>(v.ptr), v.len);
    case WV_TUPLE: {
      const wv_val* items = reinterpret_cast<const wv_val*>(v.ptr);
      Local<Array> a = Array::New(i, static_cast<int>(v.len));
      for (size_t k = 0; k < v.len; k++) {
        Local<Value> e;
        if (!FromVal(w, c, items[k]).ToLocal(&e) || a->Set(c, static_cast<uint32_t>(k), e).IsNothing()) return {};
      }
      return a;
    }
    case WV_HANDLE: case WV_PROMISE: return w->handles[static_cast<uint32_t>(v.num)].Get(i);
    default: return Undefined(i);
  }
}

// Zero-copy (or scratch-copy) view of a JS value for the duration of a callback.
struct ArgView {
  char small[256];
  char* big = nullptr;
  ~ArgView() { free(big); }
  void Fill(wv_iso* w, Local<Context> c, Local<Value> v, wv_val* o) {
    Isolate* i = w->iso;
    if (v->IsNumber()) { o->tag = WV_NUM; o->num = v.As<Number>()->Value(); return; }
    if (v->IsString()) {
      Local<String> s = v.As<String>();
      o->tag = WV_STR;
      size_t cap = static_cast<size_t>(s->Length()) * 3;
      char* dst = small;
      if (cap > sizeof small) {
        cap = s->Utf8LengthV2(i);
        if (cap > sizeof small) dst = big = static_cast<char*>(malloc(cap));
      } else {
        cap = sizeof small;
      }
      o->len = s->WriteUtf8V2(i, dst, cap, String::WriteFlags::kReplaceInvalidUtf8);
      o->ptr = Addr(dst);
      return;
    }
    if (v->IsArrayBuffer()) {
      Local<ArrayBuffer> ab = v.As<ArrayBuffer>();
      o->tag = WV_BYTES; o->ptr = Addr(ab->Data()); o->len = ab->ByteLength();
      return;
    }
    if (v->IsArrayBufferView()) {
      MemorySpan<uint8_t> sp = v.As<ArrayBufferView>()->GetContents({reinterpret_cast<uint8_t*>(small), sizeof small});
      o->tag = WV_BYTES; o->ptr = Addr(sp.data()); o->len = sp.size();
      return;
    }
    if (v->IsUndefined()) { o->tag = WV_UNDEF; return; }
    if (v->IsNull()) { o->tag = WV_NULL; return; }
    if (v->IsBoolean()) { o->tag = v->IsTrue() ? WV_TRUE : WV_FALSE; return; }
    o->tag = WV_HANDLE;
    o->num = NewHandle(w, v);
  }
};

void SetErr(wv_iso* w, Local<Context> c, TryCatch& tc) {
  Isolate* i = w->iso;
  w->err.clear();
  if (tc.HasTerminated()) { w->err = w->oom_now ? "memory limit exceeded" : "execution terminated"; return; }
  Local<Value> e = tc.Exception();
  if (e.IsEmpty()) { w->err = "unknown exception"; return; }
  TryCatch inner(i);
  Local<Value> st;
  if (e->IsObject() && TryCatch::StackTrace(c, e).ToLocal(&st) && st->IsString() && st.As<String>()->Length()) {
    AppendUtf8(i, st.As<String>(), &w->err);
  } else {
    Local<String> s;
    if (e->ToString(c).ToLocal(&s)) AppendUtf8(i, s, &w->err);
  }
  if (!tc.Message().IsEmpty()) {
    Local<Message> m = tc.Message();
    Local<Value> rn = m->GetScriptResourceName();
    if (rn->IsString()) {
      w->err += "\n  @";
      AppendUtf8(i, rn.As<String>(), &w->err);
      w->err += ":" + std::to_string(m->GetLineNumber(c).FromMaybe(0));
    }
  }
}
int Fail(wv_iso* w, Local<Context> c, TryCatch& tc) {
  SetErr(w, c, tc);
  if (tc.HasTerminated() || w->iso->IsExecutionTerminating()) {
    w->terminated_in = w->ctxs[CtxId(c)].get();
    return w->oom_now ? WV_OOM : WV_TERMINATED;
  }
  return WV_THROW;
}

// Result value -> ret. Bytes live in w->ret until the next entry.
int ToVal(wv_iso* w, Local<Context> c, Local<Value> v, int flags, wv_val* o, TryCatch& tc) {
  Isolate* i = w->iso;
  *o = {};
  if (v->IsPromise()) {
    Local<Promise> p = v.As<Promise>();
    switch (p->State()) {
      case Promise::kPending:
        p->MarkAsHandled();
        o->tag = WV_PROMISE;
        o->num = NewHandle(w, v);
        return WV_OK;
      case Promise::kRejected: {
        p->MarkAsHandled();
        for (auto it = w->rejections.begin(); it != w->rejections.end();) {
          if (it->p == p) it = w->rejections.erase(it); else ++it;
        }
        i->ThrowException(p->Result());
        return Fail(w, c, tc);
      }
      case Promise::kFulfilled: v = p->Result(); break;
    }
  }
  if (flags & WV_F_HANDLE) { o->tag = WV_HANDLE; o->num = NewHandle(w, v); return WV_OK; }
  if (flags & WV_F_CLONE) {
    std::pair<uint8_t*, size_t> b;
    if (!Serialize(i, c, v, &b)) return Fail(w, c, tc);
    w->ret.assign(reinterpret_cast<char*>(b.first), b.second);
    free(b.first);
    o->tag = WV_CLONE; o->ptr = Addr(w->ret.data()); o->len = w->ret.size();
    return WV_OK;
  }
  if (v->IsString()) {
    w->ret.clear();
    AppendUtf8(i, v.As<String>(), &w->ret);
    o->tag = WV_STR; o->ptr = Addr(w->ret.data()); o->len = w->ret.size();
    return WV_OK;
  }
  ArgView av;
  av.Fill(w, c, v, o);
  if (o->tag == WV_BYTES) {
    w->ret.assign(reinterpret_cast<const char*>(o->ptr), o->len);
    o->ptr = Addr(w->ret.data());
  }
  return WV_OK;
}

// An error of the class that Go asked for: "Class\0message". Classes that V8 does not know are the runtime's.
Local<Value> MakeError(wv_iso* w, Local<Context> c, const wv_val& r) {
  Isolate* i = w->iso;
  const char* p = reinterpret_cast<const char*>(r.ptr);
  const char* cut = r.tag == WV_STR ? static_cast<const char*>(memchr(p, 0, r.len)) : nullptr;
  if (!cut) return Exception::Error(r.tag == WV_STR ? Str(i, p, r.len) : Sym(i, "host error"));
  std::string cls(p, cut - p);
  Local<String> msg = Str(i, cut + 1, r.len - (cut + 1 - p));
  if (cls == "TypeError") return Exception::TypeError(msg);
  if (cls == "RangeError") return Exception::RangeError(msg);
  if (cls == "SyntaxError") return Exception::SyntaxError(msg);
  Local<Value> e;
  if (cls != "Error" && !w->make_error.IsEmpty()) {
    Local<Value> args[2] = {Str(i, cls.data(), cls.size()), msg};
    if (w->make_error.Get(i)->Call(c, Undefined(i), 2, args).ToLocal(&e)) return e;
  }
  return Exception::Error(msg);
}

// ---- host functions ---------------------------------------------------------
void HostRet(wv_iso* w, Local<Context> c, int rc, wv_val& r, const FunctionCallbackInfo<Value>& info) {
  Isolate* i = w->iso;
  if (i->IsExecutionTerminating()) return;
  if (rc != 0) {
    i->ThrowException(MakeError(w, c, r));
  } else if (r.tag == WV_NUM) {
    info.GetReturnValue().Set(r.num);
  } else if (r.tag != WV_UNDEF) {
    Local<Value> v;
    if (FromVal(w, c, r).ToLocal(&v)) info.GetReturnValue().Set(v);
  }
  if (r.tag == WV_TUPLE) {
    wv_val* items = reinterpret_cast<wv_val*>(r.ptr);
    for (size_t k = 0; k < r.len; k++) if (items[k].tag == WV_STR || items[k].tag == WV_BYTES || items[k].tag == WV_CLONE) free(reinterpret_cast<void*>(items[k].ptr));
    free(items);
  }
  if (r.ptr && r.ptr != Addr(w->scratch) && (r.tag == WV_STR || r.tag == WV_BYTES || r.tag == WV_CLONE)) free(reinterpret_cast<void*>(r.ptr));
}

constexpr int kMaxArgs = 12;

void HostCall(const FunctionCallbackInfo<Value>& info) {
  Isolate* i = info.GetIsolate();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  if (!w) return;
  Local<Context> c = i->GetCurrentContext();
  uint32_t op = info[0]->IsUint32() ? info[0].As<Uint32>()->Value() : 0;
  int n = info.Length() - 1;
  if (n < 0) n = 0;
  if (n > kMaxArgs) n = kMaxArgs;
  wv_val args[kMaxArgs];
  wv_val r{WV_UNDEF, sizeof w->scratch, 0, Addr(w->scratch), 0};
  int rc;
  if (n == 0) {
    rc = wvGoHost(w->token, CtxId(c), op, 0, args, 0, &r);
  } else {
    ArgView av[kMaxArgs];
    for (int k = 0; k < n; k++) { args[k] = {}; av[k].Fill(w, c, info[k + 1], &args[k]); }
    rc = wvGoHost(w->token, CtxId(c), op, 0, args, n, &r);
  }
  HostRet(w, c, rc, r, info);
}

void HostAsync(const FunctionCallbackInfo<Value>& info) {
  Isolate* i = info.GetIsolate();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  if (!w) return;
  Local<Context> c = i->GetCurrentContext();
  Local<Promise::Resolver> res;
  if (!Promise::Resolver::New(c).ToLocal(&res)) return;
  uint32_t id = ++w->next_resolver;
  w->resolvers.emplace(id, Global<Promise::Resolver>(i, res));
  uint32_t op = info[0]->IsUint32() ? info[0].As<Uint32>()->Value() : 0;
  int n = info.Length() - 1;
  if (n < 0) n = 0;
  if (n > kMaxArgs) n = kMaxArgs;
  wv_val args[kMaxArgs];
  ArgView av[kMaxArgs];
  for (int k = 0; k < n; k++) { args[k] = {}; av[k].Fill(w, c, info[k + 1], &args[k]); }
  wv_val r{WV_UNDEF, sizeof w->scratch, 0, Addr(w->scratch), 0};
  int rc = wvGoHost(w->token, CtxId(c), op, id, args, n, &r);
  if (i->IsExecutionTerminating()) return;
  if (rc != 0) {
    w->resolvers.erase(id);
    HostRet(w, c, rc, r, info);
    return;
  }
  info.GetReturnValue().Set(res->GetPromise());
}

void HostNop(const FunctionCallbackInfo<Value>& info) {}  // C++-only leaf, for measuring

void HostSerialize(const FunctionCallbackInfo<Value>& info) {
  Isolate* i = info.GetIsolate();
  std::pair<uint8_t*, size_t> b;
  if (!Serialize(i, i->GetCurrentContext(), info[0], &b)) return;
  Local<ArrayBuffer> ab = ArrayBuffer::New(i, b.second);
  memcpy(ab->Data(), b.first, b.second);
  free(b.first);
  info.GetReturnValue().Set(ab);
}
void HostDeserialize(const FunctionCallbackInfo<Value>& info) {
  Isolate* i = info.GetIsolate();
  Local<Value> v;
  if (info[0]->IsArrayBuffer()) {
    Local<ArrayBuffer> ab = info[0].As<ArrayBuffer>();
    if (Deserialize(i, i->GetCurrentContext(), static_cast<uint8_t*>(ab->Data()), ab->ByteLength()).ToLocal(&v)) info.GetReturnValue().Set(v);
  }
}

const intptr_t kExternalRefs[] = {
    reinterpret_cast<intptr_t>(&HostCall), reinterpret_cast<intptr_t>(&HostAsync),
    reinterpret_cast<intptr_t>(&HostNop), reinterpret_cast<intptr_t>(&HostSerialize),
    reinterpret_cast<intptr_t>(&HostDeserialize), 0};

void InstallHost(Isolate* i, Local<Context> c) {
  Context::Scope cs(c);
  Local<Object> h = Object::New(i);
  auto add = [&](const char* name, FunctionCallback f) {
    Local<Function> fn = FunctionTemplate::New(i, f, Local<Value>(), Local<Signature>(), 0, ConstructorBehavior::kThrow)->GetFunction(c).ToLocalChecked();
    h->Set(c, Sym(i, name), fn).Check();
  };
  add("call", HostCall);
  add("async", HostAsync);
  add("nop", HostNop);
  add("serialize", HostSerialize);
  add("deserialize", HostDeserialize);
  h->Set(c, Sym(i, "extras"), c->GetExtrasBindingObject()).Check();
  c->Global()->DefineOwnProperty(c, Sym(i, "__host"), h, DontEnum).Check();
}

// ---- isolate callbacks --------------------------------------------------------
void OnReject(PromiseRejectMessage m) {
  Isolate* i = Isolate::GetCurrent();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  if (!w) return;
  if (m.GetEvent() == kPromiseRejectWithNoHandler) {
    Local<Context> c = i->GetCurrentContext();
    w->rejections.push_back({Global<Promise>(i, m.GetPromise()), Global<Value>(i, m.GetValue()), CtxId(c)});
  } else if (m.GetEvent() == kPromiseHandlerAddedAfterReject) {
    for (auto it = w->rejections.begin(); it != w->rejections.end(); ++it) {
      if (it->p == m.GetPromise()) { w->rejections.erase(it); return; }
    }
  }
}

void FlushRejections(wv_iso* w) {
  if (w->rejections.empty()) return;
  auto list = std::move(w->rejections);
  w->rejections.clear();
  for (auto& r : list) {
    HandleScope hs(w->iso);
    TryCatch tc(w->iso);
    Local<Context> c = w->ctxs[r.ctx]->ctx.Get(w->iso);
    std::string msg;
    Local<Value> v = r.v.Get(w->iso), st;
    if (v->IsObject() && TryCatch::StackTrace(c, v).ToLocal(&st) && st->IsString()) AppendUtf8(w->iso, st.As<String>(), &msg);
    else { Local<String> s; if (v->ToString(c).ToLocal(&s)) AppendUtf8(w->iso, s, &msg); }
    wvGoUnhandled(w->token, r.ctx, msg.data(), msg.size());
  }
}

MaybeLocal<Module> ModuleById(wv_iso* w, Ctx* x, int id) {
  if (id < 0 || id >= static_cast<int>(x->mods.size())) return {};
  return x->mods[id].Get(w->iso);
}
int IdOf(wv_iso* w, Ctx* x, Local<Module> m) {
  auto r = x->by_hash.equal_range(m->GetIdentityHash());
  for (auto it = r.first; it != r.second; ++it) if (x->mods[it->second] == m) return it->second;
  return -1;
}
int AddModule(wv_iso* w, Ctx* x, Local<Module> m, std::string name) {
  int id = static_cast<int>(x->mods.size());
  x->mods.emplace_back(w->iso, m);
  x->mod_names.push_back(std::move(name));
  x->by_hash.emplace(m->GetIdentityHash(), id);
  return id;
}
void ThrowResolve(Isolate* i, const std::string& spec) {
  if (i->IsExecutionTerminating()) return;
  std::string m = "No such module \"" + spec + "\".";
  i->ThrowException(Exception::Error(Str(i, m.data(), m.size())));
}

MaybeLocal<Module> ResolveCb(Local<Context> c, Local<String> spec, Local<FixedArray>, Local<Module> ref) {
  Isolate* i = c->GetIsolate();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  int cid = CtxId(c);
  Ctx* x = w->ctxs[cid].get();
  std::string s;
  AppendUtf8(i, spec, &s);
  int rid = IdOf(w, x, ref);
  std::string rn = rid >= 0 ? x->mod_names[rid] : "";
  int id = wvGoResolve(w->token, cid, s.data(), s.size(), rn.data(), rn.size(), 0);
  Local<Module> m;
  if (!ModuleById(w, x, id).ToLocal(&m)) { ThrowResolve(i, s); return {}; }
  return m;
}

MaybeLocal<Value> SynthEval(Local<Context> c, Local<Module> m) {
  Isolate* i = c->GetIsolate();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  Ctx* x = w->ctxs[CtxId(c)].get();
  int id = IdOf(w, x, m);
  auto it = x->synth_exports.find(id);
  if (it == x->synth_exports.end()) return {};
  Local<Object> o = it->second.Get(i);
  Local<Array> names;
  if (!o->GetOwnPropertyNames(c).ToLocal(&names)) return {};
  for (uint32_t k = 0; k < names->Length(); k++) {
    Local<Value> n, v;
    if (!names->Get(c, k).ToLocal(&n) || !o->Get(c, n).ToLocal(&v)) return {};
    if (m->SetSyntheticModuleExport(i, n.As<String>(), v).IsNothing()) return {};
  }
  Local<Promise::Resolver> r;
  if (!Promise::Resolver::New(c).ToLocal(&r)) return {};
  Ignore(r->Resolve(c, Undefined(i)));
  return r->GetPromise();
}

void ImportDone(const FunctionCallbackInfo<Value>& info) {
  info.GetReturnValue().Set(info.Data());
}

MaybeLocal<Promise> DynImport(Local<Context> c, Local<Data>, Local<Value> res_name, Local<String> spec, Local<FixedArray>) {
  Isolate* i = c->GetIsolate();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  Local<Promise::Resolver> r;
  if (!Promise::Resolver::New(c).ToLocal(&r)) return {};
  TryCatch tc(i);
  int cid = CtxId(c);
  Ctx* x = w->ctxs[cid].get();
  std::string s, rn;
  AppendUtf8(i, spec, &s);
  if (res_name->IsString()) AppendUtf8(i, res_name.As<String>(), &rn);
  int id = wvGoResolve(w->token, cid, s.data(), s.size(), rn.data(), rn.size(), 1);
  Local<Module> m;
  bool ok = false;
  Local<Value> ev;
  if (!ModuleById(w, x, id).ToLocal(&m)) {
    ThrowResolve(i, s);
  } else if (m->InstantiateModule(c, ResolveCb).To(&ok) && ok && m->Evaluate(c).ToLocal(&ev)) {
    Local<Function> then;
    Local<Promise> chained;
    if (Function::New(c, ImportDone, m->GetModuleNamespace(), 0, ConstructorBehavior::kThrow).ToLocal(&then) &&
        ev.As<Promise>()->Then(c, then).ToLocal(&chained)) {
      Ignore(r->Resolve(c, chained));
      return r->GetPromise();
    }
  }
  if (tc.HasTerminated()) { tc.ReThrow(); return {}; }
  Ignore(r->Reject(c, tc.HasCaught() ? tc.Exception() : Exception::Error(Sym(i, "import failed"))));
  return r->GetPromise();
}

void ImportMeta(Local<Context> c, Local<Module> m, Local<Object> meta) {
  Isolate* i = c->GetIsolate();
  wv_iso* w = static_cast<wv_iso*>(i->GetData(0));
  Ctx* x = w->ctxs[CtxId(c)].get();
  int id = IdOf(w, x, m);
  if (id >= 0) meta->CreateDataProperty(c, Sym(i, "url"), Str(i, x->mod_names[id].data(), x->mod_names[id].size())).Check();
}

}  // namespace

// Fatal V8 errors (impossible allocations, CHECK failures) would abort the whole
// daemon. V8 offers no way back, but its callback need not return: report the
// isolate dead and park this OS thread for ever. Other isolates go on; the
// daemon can drain and restart.
[[noreturn]] static void Park(const char* what, const char* detail) {
  Isolate* i = Isolate::TryGetCurrent();
  wv_iso* w = i ? static_cast<wv_iso*>(i->GetData(0)) : nullptr;
  std::string m = std::string(what ? what : "fatal error") + (detail ? std::string(": ") + detail : "");
  if (!w || !g_park) {
    fprintf(stderr, "v8 fatal: %s\n", m.c_str());
    abort();
  }
  wvGoFatal(w->token, m.data(), m.size());
  for (;;) pause();
}
static void OnOOM(const char* loc, const OOMDetails& d) { Park(loc, d.detail); }
static void OnFatal(const char* loc, const char* msg) { Park(loc, msg); }
static void OnV8Fatal(const char* file, int line, const char* msg) { Park("check failed", msg); }

// near-heap-limit: stop the script, and give V8 head room so that the unwinding
// itself does not run into the hard limit.
size_t NearHeapLimit(void* data, size_t cur, size_t initial) {
  wv_iso* w = static_cast<wv_iso*>(data);
  w->oom_now = true;
  w->oom_hits++;
  w->iso->TerminateExecution();
  // One allocation can be as large as 1 GB (a double array or a two-byte string)
  // and V8 aborts the process if the raised limit still does not fit it.
  return cur + (size_t(1) << 30) + (size_t(1) << 28);
}

// WebAssembly.Memory does not go through the ArrayBuffer allocator; check the
// external memory counter after each GC (V8 runs one as that counter grows).
static void AfterGC(Isolate* i, GCType, GCCallbackFlags, void* data) {
  wv_iso* w = static_cast<wv_iso*>(data);
  HeapStatistics h;
  i->GetHeapStatistics(&h);
  if (h.external_memory() > 2 * w->buffer_limit && w->running) {
    w->oom_now = true;
    w->oom_hits++;
    i->TerminateExecution();
  }
}

extern "C" {

long wv_threads_created(void) { return g_threads_seen; }
int wv_nop(int x) { return x + 1; }

void wv_init(const char* flags, int workers) {
  static std::once_flag once;
  std::call_once(once, [&] {
    if (flags && *flags) V8::SetFlagsFromString(flags);
    g_default_platform = platform::NewDefaultPlatform(workers);
    g_plat = new Plat;
    V8::SetFatalErrorHandler(OnV8Fatal);
    V8::InitializePlatform(g_plat);
    V8::Initialize();
    g_allocator = ArrayBuffer::Allocator::NewDefaultAllocator();
  });
}
const char* wv_version(void) { return V8::GetVersion(); }
void wv_free(const void* p) { free(const_cast<void*>(p)); }

// --- wasm trap handler chained in front of Go's SIGSEGV handler -------------
static struct sigaction g_old_segv;
static void SegvHandler(int sig, siginfo_t* info, void* uc) {
  if (TryHandleWebAssemblyTrapPosix(sig, info, uc)) return;
  if (g_old_segv.sa_flags & SA_SIGINFO) g_old_segv.sa_sigaction(sig, info, uc);
  else if (g_old_segv.sa_handler != SIG_DFL && g_old_segv.sa_handler != SIG_IGN) g_old_segv.sa_handler(sig);
  else { signal(sig, SIG_DFL); }
}
int wv_trap_handler(int mode) {
  if (mode == 0) return 0;
  if (mode == 2) return V8::EnableWebAssemblyTrapHandler(true);  // V8's own handler: removes itself on foreign faults
  if (!V8::EnableWebAssemblyTrapHandler(false)) return 0;
  struct sigaction sa;
  memset(&sa, 0, sizeof sa);
  sigaction(SIGSEGV, nullptr, &g_old_segv);
  sa.sa_sigaction = SegvHandler;
  sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sa.sa_mask = g_old_segv.sa_mask;
  return sigaction(SIGSEGV, &sa, nullptr) == 0;
}

int wv_snapshot_create(const char* src, size_t n, const char* warm, size_t wn, int keep_code, wv_blob* out) {
  Isolate::CreateParams p;
  p.array_buffer_allocator = g_allocator;
  p.external_references = kExternalRefs;
  SnapshotCreator sc(p);
  Isolate* i = sc.GetIsolate();
  bool ok = false;
  {
    HandleScope hs(i);
    Local<Context> c = Context::New(i);
    InstallHost(i, c);
    Context::Scope cs(c);
    TryCatch tc(i);
    ScriptOrigin o(Sym(i, "prelude.js"));
    Local<Script> s;
    Local<Value> v;
    ok = Script::Compile(c, Str(i, src, n), &o).ToLocal(&s) && s->Run(c).ToLocal(&v);
    if (ok && wn) {
      ScriptOrigin o2(Sym(i, "warm.js"));
      ok = Script::Compile(c, Str(i, warm, wn), &o2).ToLocal(&s) && s->Run(c).ToLocal(&v);
    }
    if (!ok && tc.HasCaught()) {
      String::Utf8Value m(i, tc.Exception());
      fprintf(stderr, "snapshot prelude: %s\n", *m);
    }
    sc.SetDefaultContext(c);
  }
  StartupData d = sc.CreateBlob(keep_code ? SnapshotCreator::FunctionCodeHandling::kKeep : SnapshotCreator::FunctionCodeHandling::kClear);
  if (!ok || !d.data) { delete[] d.data; return 0; }
  char* cp = static_cast<char*>(malloc(d.raw_size));
  memcpy(cp, d.data, d.raw_size);
  out->data = cp;
  out->len = d.raw_size;
  delete[] d.data;
  return 1;
}

wv_iso* wv_iso_new(const wv_iso_opts* o) {
  wv_iso* w = new wv_iso;
  w->token = o->token;
  Isolate::CreateParams p;
  // shared: backing stores (transfer, SharedArrayBuffer) may outlive the isolate
  p.array_buffer_allocator_shared = std::make_shared<CapAllocator>(o->buffer_limit);
  p.external_references = kExternalRefs;
  p.allow_atomics_wait = false;
  p.fatal_error_callback = OnFatal;
  p.oom_error_callback = OnOOM;
  if (o->snapshot) {
    // V8 keeps the pointer to this struct for the isolate's whole life.
    w->sd.data = o->snapshot->data;
    w->sd.raw_size = o->snapshot->len;
    p.snapshot_blob = &w->sd;
  }
  if (o->heap_limit) p.constraints.ConfigureDefaultsFromHeapSize(o->init_heap, o->heap_limit);
  if (o->young_limit) p.constraints.set_max_young_generation_size_in_bytes(o->young_limit);
  Isolate* i = Isolate::Allocate();
  w->iso = i;
  w->runner = g_plat->Get(i);
  w->runner->token = o->token;
  Isolate::Initialize(i, p);
  {
    Locker l(i);
    Isolate::Scope is(i);
    HandleScope hs(i);
    i->SetData(0, w);
    HeapStatistics hstat;
    i->GetHeapStatistics(&hstat);
    w->heap_limit = hstat.heap_size_limit();
    i->SetMicrotasksPolicy(MicrotasksPolicy::kExplicit);
    i->SetCaptureStackTraceForUncaughtExceptions(true, 10);
    i->SetPromiseRejectCallback(OnReject);
    i->SetHostImportModuleDynamicallyCallback(DynImport);
    i->SetHostInitializeImportMetaObjectCallback(ImportMeta);
    i->AddNearHeapLimitCallback(NearHeapLimit, w);
    // Code comes with the deployment, never out of strings or bytes at run time.
    i->SetAllowWasmCodeGenerationCallback([](Local<Context> c, Local<String>) {
      return static_cast<wv_iso*>(c->GetIsolate()->GetData(0))->compiling;
    });
    w->buffer_limit = o->buffer_limit;
    if (o->buffer_limit) i->AddGCEpilogueCallback(AfterGC, w);
  }
  return w;
}

void wv_insp_close(wv_iso* w);

void wv_iso_free(wv_iso* w) {
  Isolate* i = w->iso;
  wv_insp_close(w);
  {
    Locker l(i);
    Isolate::Scope is(i);
    HandleScope hs(i);
    w->rejections.clear();
    w->resolvers.clear();
    w->make_error.Reset();
    w->handles.clear();
    for (auto& c : w->ctxs) if (c) { c->mods.clear(); c->synth_exports.clear(); c->ctx.Reset(); }
    w->ctxs.clear();
  }
  i->Dispose();
  g_plat->Drop(i);
  delete w;
}

void wv_terminate(wv_iso* w) {
  std::lock_guard<std::mutex> l(w->tmu);
  if (w->running) w->iso->TerminateExecution();
}

int64_t wv_iso_running_cpu_ns(wv_iso* w) {
  std::lock_guard<std::mutex> l(w->tmu);
  if (!w->running) return -1;
  timespec ts;
  if (clock_gettime(w->clk, &ts)) return -1;
  return int64_t(ts.tv_sec) * 1000000000 + ts.tv_nsec;
}

void wv_iso_set_stack(wv_iso* w, size_t bytes) { w->stack_bytes = bytes; }

void wv_lock(wv_iso* w) {
  w->held.l = new Locker(w->iso);
  w->iso->Enter();
}
void wv_unlock(wv_iso* w) {
  w->iso->Exit();
  delete w->held.l;
  w->held.l = nullptr;
}

void wv_iso_stats(wv_iso* w, wv_stats* s) {
  Enter e(w);
  HeapStatistics h;
  w->iso->GetHeapStatistics(&h);
  s->used = h.used_heap_size();
  s->total = h.total_heap_size();
  s->physical = h.total_physical_size();
  s->limit = h.heap_size_limit();
  s->external = h.external_memory();
  s->malloced = h.malloced_memory();
  s->contexts = h.number_of_native_contexts();
  s->detached = h.number_of_detached_contexts();
  s->cpu_ns = 0;
  s->oom_hits = w->oom_hits;
  std::lock_guard<std::mutex> l(w->runner->mu);
  s->pending_tasks = static_cast<uint32_t>(w->runner->q.size() + w->runner->delayed.size());
}

void wv_iso_gc(wv_iso* w, int level) {
  Enter e(w);
  if (level == 2) w->iso->LowMemoryNotification();
  else w->iso->MemoryPressureNotification(level == 0 ? MemoryPressureLevel::kModerate : MemoryPressureLevel::kCritical);
}

int wv_iso_pump(wv_iso* w, double* next_delay) {
  Enter e(w);
  int n = 0;
  double next = -1;
  for (int budget = 64; budget > 0; budget--) {
    std::unique_ptr<Task> t;
    {
      std::lock_guard<std::mutex> l(w->runner->mu);
      double now = NowSec();
      auto& d = w->runner->delayed;
      next = -1;
      for (size_t k = 0; k < d.size(); k++) {
        if (d[k].due <= now) { if (!t) { t = std::move(d[k].task); d.erase(d.begin() + k); k--; } }
        else if (next < 0 || d[k].due - now < next) next = d[k].due - now;
      }
      if (!t && !w->runner->q.empty()) { t = std::move(w->runner->q.front()); w->runner->q.pop_front(); }
    }
    if (!t) break;
    HandleScope hs(w->iso);
    t->Run();
    n++;
  }
  if (next_delay) *next_delay = next;
  return n;
}

int wv_ctx_new(wv_iso* w, int own_q) {
  Enter e(w);
  Isolate* i = w->iso;
  auto x = std::make_unique<Ctx>();
  if (own_q) x->mtq = MicrotaskQueue::New(i, MicrotasksPolicy::kExplicit);
  Local<Context> c = Context::New(i, nullptr, {}, {}, {}, x->mtq.get());
  int id = static_cast<int>(w->ctxs.size());
  c->SetAlignedPointerInEmbedderData(kCtxIndex, reinterpret_cast<void*>(static_cast<intptr_t>(id) << 1));
  if (!c->Global()->HasOwnProperty(c, Sym(i, "__host")).FromMaybe(false)) InstallHost(i, c);
  c->AllowCodeGenerationFromStrings(false);
  x->ctx.Reset(i, c);
  w->ctxs.push_back(std::move(x));
  return id;
}

void wv_ctx_free(wv_iso* w, int id) {
  Enter e(w);
  Ctx* x = w->ctxs[id].get();
  x->mods.clear();
  x->synth_exports.clear();
  x->by_hash.clear();
  x->ctx.Reset();
  x->live = false;
  w->iso->ContextDisposedNotification(ContextDependants::kSomeDependants);
}

#define IN(w, id)                              \
  Enter en_(w);                                \
  Isolate* i = (w)->iso;                       \
  Ctx* x = (w)->ctxs[id].get();                \
  Local<Context> c = x->ctx.Get(i);            \
  Context::Scope cs_(c);                       \
  TryCatch tc(i);                              \
  (void)x; (void)i

static int Finish(wv_iso* w, Ctx* x, Local<Context> c, TryCatch& tc, int flags) {
  if (!(flags & WV_F_NOMICRO)) {
    RunMicrotasks(w, x);
    if (tc.HasTerminated() || w->iso->IsExecutionTerminating()) return Fail(w, c, tc);
  }
  return WV_OK;
}

static ScriptCompiler::CachedData* Cached(const wv_blob* b) {
  if (!b || !b->data) return nullptr;
  return new ScriptCompiler::CachedData(reinterpret_cast<const uint8_t*>(b->data), b->len, ScriptCompiler::CachedData::BufferNotOwned);
}
static void PutBlob(ScriptCompiler::CachedData* d, wv_blob* out) {
  if (!d) { out->data = nullptr; out->len = 0; return; }
  char* p = static_cast<char*>(malloc(d->length));
  memcpy(p, d->data, d->length);
  out->data = p;
  out->len = d->length;
  delete d;
}

int wv_eval(wv_iso* w, int ctx, const char* src, size_t n, const char* name, size_t nn, int flags, const wv_blob* cache, wv_blob* cache_out, wv_val* ret) {
  IN(w, ctx);
  ScriptOrigin o(Str(i, name, nn));
  ScriptCompiler::Source s(Str(i, src, n), o, Cached(cache));
  Local<Script> sc;
  Local<Value> v;
  if (!ScriptCompiler::Compile(c, &s, cache && cache->data ? ScriptCompiler::kConsumeCodeCache : ScriptCompiler::kNoCompileOptions).ToLocal(&sc)) return Fail(w, c, tc);
  if (!sc->Run(c).ToLocal(&v)) return Fail(w, c, tc);
  if (cache_out) PutBlob(ScriptCompiler::CreateCodeCache(sc->GetUnboundScript()), cache_out);
  int rc = Finish(w, x, c, tc, flags);
  if (rc) return rc;
  rc = ToVal(w, c, v, flags, ret, tc);
  tc.Reset();
  FlushRejections(w);
  return rc;
}

int wv_call(wv_iso* w, int ctx, uint32_t fn, const wv_val* args, int nargs, int flags, wv_val* ret) {
  IN(w, ctx);
  Local<Value> f = w->handles[fn].Get(i);
  if (!f->IsFunction()) { w->err = "not a function"; return WV_THROW; }
  Local<Value> argv[16];
  if (nargs > 16) nargs = 16;
  for (int k = 0; k < nargs; k++) if (!FromVal(w, c, args[k]).ToLocal(&argv[k])) return Fail(w, c, tc);
  Local<Value> v;
  if (!f.As<Function>()->Call(c, Undefined(i), nargs, argv).ToLocal(&v)) {
    int rc = Fail(w, c, tc);
    if (rc == WV_THROW) { std::string e = w->err; tc.Reset(); int r2 = Finish(w, x, c, tc, flags); FlushRejections(w); if (r2) return r2; w->err = e; }
    return rc;
  }
  int rc = Finish(w, x, c, tc, flags);
  if (rc) return rc;
  rc = ToVal(w, c, v, flags, ret, tc);
  if (!w->rejections.empty()) { tc.Reset(); FlushRejections(w); }
  return rc;
}

int wv_microtasks(wv_iso* w, int ctx) {
  IN(w, ctx);
  int rc = Finish(w, x, c, tc, 0);
  if (rc == WV_OK) FlushRejections(w);
  return rc;
}

int wv_promise_state(wv_iso* w, int ctx, uint32_t h, int flags, wv_val* ret) {
  IN(w, ctx);
  Local<Value> v = w->handles[h].Get(i);
  if (!v->IsPromise()) return 1;
  Local<Promise> p = v.As<Promise>();
  if (p->State() == Promise::kPending) return 0;
  return ToVal(w, c, v, flags, ret, tc) == WV_OK ? 1 : 2;
}

int wv_resolve_batch(wv_iso* w, int ctx, int n, const uint32_t* ids, const uint8_t* reject, const wv_val* vals, int flags) {
  IN(w, ctx);
  for (int k = 0; k < n; k++) {
    auto it = w->resolvers.find(ids[k]);
    if (it == w->resolvers.end()) continue;
    HandleScope hs(i);
    Local<Promise::Resolver> r = it->second.Get(i);
    w->resolvers.erase(it);
    Local<Value> v;
    if (!FromVal(w, c, vals[k]).ToLocal(&v)) { tc.Reset(); continue; }
    if (reject && reject[k]) Ignore(r->Reject(c, v->IsString() ? MakeError(w, c, vals[k]) : v));
    else Ignore(r->Resolve(c, v));
  }
  int rc = Finish(w, x, c, tc, flags);
  if (rc == WV_OK) FlushRejections(w);
  return rc;
}

void wv_handle_free(wv_iso* w, uint32_t h) {
  Enter e(w);
  w->handles[h].Reset();
  w->free_handles.push_back(h);
}

void wv_resolver_drop(wv_iso* w, uint32_t id) {
  Enter e(w);
  w->resolvers.erase(id);
}

void wv_set_error_factory(wv_iso* w, uint32_t h) {
  Enter e(w);
  w->make_error.Reset(w->iso, w->handles[h].Get(w->iso).As<Function>());
}

int wv_set_global(wv_iso* w, int ctx, const char* name, size_t n, const wv_val* v) {
  IN(w, ctx);
  Local<Value> l;
  if (!FromVal(w, c, *v).ToLocal(&l) || c->Global()->Set(c, Str(i, name, n), l).IsNothing()) return Fail(w, c, tc);
  return WV_OK;
}

int wv_mod_compile(wv_iso* w, int ctx, const char* src, size_t n, const char* name, size_t nn, const wv_blob* cache, int* rejected) {
  IN(w, ctx);
  ScriptOrigin o(Str(i, name, nn), 0, 0, false, -1, Local<Value>(), false, false, true);
  ScriptCompiler::Source s(Str(i, src, n), o, Cached(cache));
  Local<Module> m;
  if (!ScriptCompiler::CompileModule(i, &s, cache && cache->data ? ScriptCompiler::kConsumeCodeCache : ScriptCompiler::kNoCompileOptions).ToLocal(&m)) { Fail(w, c, tc); return -1; }
  if (rejected) *rejected = s.GetCachedData() && s.GetCachedData()->rejected;
  return AddModule(w, x, m, std::string(name, nn));
}

int wv_mod_synthetic(wv_iso* w, int ctx, const char* name, size_t nn, uint32_t h) {
  IN(w, ctx);
  Local<Object> o = w->handles[h].Get(i).As<Object>();
  Local<Array> names;
  if (!o->GetOwnPropertyNames(c).ToLocal(&names)) { Fail(w, c, tc); return -1; }
  std::vector<Local<String>> ex;
  for (uint32_t k = 0; k < names->Length(); k++) ex.push_back(names->Get(c, k).ToLocalChecked().As<String>());
  Local<Module> m = Module::CreateSyntheticModule(i, Str(i, name, nn), MemorySpan<const Local<String>>(ex.data(), ex.size()), SynthEval);
  int id = AddModule(w, x, m, std::string(name, nn));
  x->synth_exports[id].Reset(i, o);
  return id;
}

int wv_mod_instantiate(wv_iso* w, int ctx, int mod) {
  IN(w, ctx);
  Local<Module> m;
  bool ok = false;
  if (!ModuleById(w, x, mod).ToLocal(&m)) { w->err = "no module"; return WV_THROW; }
  if (!m->InstantiateModule(c, ResolveCb).To(&ok) || !ok) return Fail(w, c, tc);
  return WV_OK;
}

int wv_mod_evaluate(wv_iso* w, int ctx, int mod, int flags, wv_val* ret) {
  IN(w, ctx);
  Local<Module> m;
  Local<Value> v;
  if (!ModuleById(w, x, mod).ToLocal(&m)) { w->err = "no module"; return WV_THROW; }
  if (!m->Evaluate(c).ToLocal(&v)) return Fail(w, c, tc);
  int rc = Finish(w, x, c, tc, flags);
  if (rc) return rc;
  rc = ToVal(w, c, v, flags, ret, tc);
  tc.Reset();
  FlushRejections(w);
  return rc;
}

int wv_mod_namespace(wv_iso* w, int ctx, int mod, const char* name, size_t n, wv_val* ret) {
  IN(w, ctx);
  Local<Module> m;
  if (!ModuleById(w, x, mod).ToLocal(&m)) { w->err = "no module"; return WV_THROW; }
  Local<Value> v = m->GetModuleNamespace();
  if (name && !v.As<Object>()->Get(c, Str(i, name, n)).ToLocal(&v)) return Fail(w, c, tc);
  return ToVal(w, c, v, WV_F_HANDLE, ret, tc);
}

int wv_mod_cache(wv_iso* w, int ctx, int mod, wv_blob* out) {
  IN(w, ctx);
  Local<Module> m;
  if (!ModuleById(w, x, mod).ToLocal(&m)) return WV_THROW;
  if (m->GetStatus() >= Module::kEvaluating) return WV_THROW;
  PutBlob(ScriptCompiler::CreateCodeCache(m->GetUnboundModuleScript()), out);
  return WV_OK;
}

wv_wasm* wv_wasm_compile(wv_iso* w, int ctx, const void* p, size_t n) {
  IN(w, ctx);
  Local<WasmModuleObject> m;
  w->compiling = true;
  bool ok = WasmModuleObject::Compile(i, {static_cast<const uint8_t*>(p), n}).ToLocal(&m);
  w->compiling = false;
  if (!ok) { Fail(w, c, tc); return nullptr; }
  return new wv_wasm{m->GetCompiledModule()};
}
int wv_wasm_handle(wv_iso* w, int ctx, wv_wasm* wm, wv_val* ret) {
  IN(w, ctx);
  Local<WasmModuleObject> m;
  if (!WasmModuleObject::FromCompiledModule(i, wm->m).ToLocal(&m)) return Fail(w, c, tc);
  *ret = {};
  ret->tag = WV_HANDLE;
  ret->num = NewHandle(w, m);
  return WV_OK;
}
int wv_wasm_serialize(wv_wasm* wm, wv_blob* out) {
  OwnedBuffer b = wm->m.Serialize();
  char* p = static_cast<char*>(malloc(b.size + 1));
  memcpy(p, b.buffer.get(), b.size);
  out->data = p;
  out->len = static_cast<int>(b.size);
  return 1;
}
void wv_wasm_free(wv_wasm* wm) { delete wm; }

void wv_last_error(wv_iso* w, const char** p, size_t* n) { *p = w->err.data(); *n = w->err.size(); }

int wv_naive_call(wv_iso* w, int ctx, uint32_t fn) {
  wv_val r;
  return wv_call(w, ctx, fn, nullptr, 0, 0, &r);
}

}  // extern "C"

// --- inspector -------------------------------------------------------------------
namespace {
struct Insp : v8_inspector::V8InspectorClient, v8_inspector::V8Inspector::Channel {
  wv_iso* w;
  int ctx;
  std::unique_ptr<v8_inspector::V8Inspector> in;
  std::unique_ptr<v8_inspector::V8InspectorSession> s;
  void Emit(std::unique_ptr<v8_inspector::StringBuffer> b) {
    v8_inspector::StringView v = b->string();
    std::string out;
    if (v.is8Bit()) {
      Local<String> l = String::NewFromOneByte(w->iso, v.characters8(), NewStringType::kNormal, static_cast<int>(v.length())).ToLocalChecked();
      AppendUtf8(w->iso, l, &out);
    } else {
      Local<String> l = String::NewFromTwoByte(w->iso, v.characters16(), NewStringType::kNormal, static_cast<int>(v.length())).ToLocalChecked();
      AppendUtf8(w->iso, l, &out);
    }
    wvGoInspector(w->token, out.data(), out.size());
  }
  void sendResponse(int, std::unique_ptr<v8_inspector::StringBuffer> m) override { Emit(std::move(m)); }
  void sendNotification(std::unique_ptr<v8_inspector::StringBuffer> m) override { Emit(std::move(m)); }
  void flushProtocolNotifications() override {}
  Local<Context> ensureDefaultContextInGroup(int) override { return w->ctxs[ctx]->ctx.Get(w->iso); }
  // Paused at a breakpoint: Go blocks here (the isolate stays owned) and feeds
  // protocol messages through wv_insp_send until V8 asks to leave.
  bool paused = false;
  void runMessageLoopOnPause(int) override {
    paused = true;
    while (paused) wvGoPause(w->token);
  }
  void quitMessageLoopOnPause() override { paused = false; }
};
}  // namespace

extern "C" {
int wv_insp_open(wv_iso* w, int ctx) {
  IN(w, ctx);
  w->insp = std::make_unique<Insp>();
  w->insp->w = w;
  w->insp->ctx = ctx;
  w->insp->in = v8_inspector::V8Inspector::create(i, w->insp.get());
  v8_inspector::V8ContextInfo info(c, 1, v8_inspector::StringView(reinterpret_cast<const uint8_t*>("worker"), 6));
  w->insp->in->contextCreated(info);
  w->insp->s = w->insp->in->connect(1, w->insp.get(), v8_inspector::StringView(), v8_inspector::V8Inspector::kFullyTrusted);
  return 1;
}
void wv_insp_send(wv_iso* w, const char* m, size_t n) {
  IN(w, w->insp->ctx);
  w->insp->s->dispatchProtocolMessage(v8_inspector::StringView(reinterpret_cast<const uint8_t*>(m), n));
}
void wv_insp_close(wv_iso* w) {
  if (!w->insp) return;
  Enter e(w);
  w->insp.reset();
}
}
