#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/comm/messages/core.h"
#include "yoke/comm/shared/futex.h"
#include "yoke/comm/shared/hand_out.h"

namespace yoke::comm {
namespace messages {
namespace {

using shared::Word;

constexpr size_t kLine = 128;
// Small enough to stay in the cache of both cores, large enough that neither waits for the other often.
constexpr size_t kRingBytes = 512 << 10;
// A large payload is shown to its reader in pieces of this size, so that both copy at the same time.
constexpr size_t kPiece = 32 << 10;
static_assert((kRingBytes & (kRingBytes - 1)) == 0);

struct alignas(kLine) Desk {
  std::atomic<int64_t> pid;
  Word joined;
  Word left;
  Word life;                  // of its owner: how often it was started again
  alignas(kLine) Word inbox;  // changes when its owner should look
  Word asleep;
};

// A stream of bytes from one rank to another.
struct alignas(kLine) Ring {
  std::atomic<uint64_t> written;
  Word life;  // of the reader for whom the writer has emptied this ring and its way back
  alignas(kLine) std::atomic<uint64_t> read;
  Word writer_waits;
  alignas(kLine) std::byte data[kRingBytes];
};

class Mapping {
 public:
  Mapping(int file, size_t bytes) : bytes_(bytes) {
    base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base_ == MAP_FAILED)
      throw CommError("mapping {} bytes of shared memory: {}", bytes, describe_errno(errno));
  }
  ~Mapping() { ::munmap(base_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  void* base_;
  size_t bytes_;
};

size_t bytes_for(int size) {
  auto ranks = static_cast<size_t>(size);
  return ranks * sizeof(Desk) + ranks * ranks * sizeof(Ring);
}

shared::File make_memory(size_t bytes) {
  shared::File file(::memfd_create("yoke-messages", MFD_CLOEXEC));
  if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw CommError("{} bytes of shared memory: {}", bytes, describe_errno(errno));
  return file;
}

// Rank 0 makes the memory, the others fetch it; who comes again, too.
class Memory {
 public:
  explicit Memory(const ShmMessengerSetup& setup) {
    Deadline deadline = Deadline::after(setup.timeout);
    if (setup.rank != 0) {
      files_ = shared::receive_files(setup.get(setup.key, deadline), setup.rank, 1, *setup.failure, deadline);
      return;
    }
    YOKE_CHECK(setup.life == 0, "rank 0 holds the memory: it does not come back");
    files_.push_back(make_memory(bytes_for(setup.size)));
    server_ = std::make_unique<shared::FileServer>();
    setup.put(setup.key, server_->ticket(), deadline);
    server_->serve(files_, setup.size, *setup.failure, deadline);
    if (!setup.may_return) server_.reset();
  }
  int file() const { return files_.front().get(); }
  void serve_again(int size) {
    if (server_) server_->serve_again(files_, size);
  }

 private:
  std::vector<shared::File> files_;
  std::unique_ptr<shared::FileServer> server_;
};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const ShmMessengerSetup& setup)
      : rank_(setup.rank),
        size_(setup.size),
        life_(static_cast<uint32_t>(setup.life)),
        memory_(setup),
        mapping_(memory_.file(), bytes_for(setup.size)),
        peers_(static_cast<size_t>(setup.size)) {
    life_ == 0 ? join(setup) : come_back();
  }
  ~ShmTransport() override {
    desk(rank_).left.store(1);
    for (int peer = 0; peer < size_; ++peer) notify(peer);
  }

  const std::string& name() const override { return name_; }
  bool one_at_a_time() const override { return false; }
  bool write(int peer, Outgoing& message) override;
  bool push(int) override { return true; }
  void close(int peer) override { of(peer).closed = true; }
  const WireHead* next(int peer) override;
  bool read(int peer, std::span<std::byte> into) override;
  void wait(const std::vector<bool>& has_unwritten, double seconds) override;
  void wake() override { notify(rank_); }
  void look_for_deaths() override;
  int returned(int peer) override;
  void reopen(int peer) override;

 private:
  struct Peer {
    uint32_t life = 0;
    net::Descriptor process;
    std::string lost;
    std::atomic<bool> closed{false};
    bool has_head = false;
    WireHead head;
    size_t received = 0;
  };

  void join(const ShmMessengerSetup& setup);
  void come_back();
  bool open_process(int peer);
  Peer& of(int peer) { return peers_[static_cast<size_t>(peer)]; }
  Desk& desk(int rank) const {
    return *reinterpret_cast<Desk*>(mapping_.base() + static_cast<size_t>(rank) * sizeof(Desk));
  }
  Ring& ring(int from, int to) const {
    size_t index = static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
    return *reinterpret_cast<Ring*>(mapping_.base() + static_cast<size_t>(size_) * sizeof(Desk) +
                                    index * sizeof(Ring));
  }
  void notify(int rank) const;
  size_t put(Ring& ring, const void* from, size_t bytes) const;
  size_t get(Ring& ring, int from, void* to, size_t bytes) const;
  void check(int peer) {
    if (of(peer).closed) throw CommError("rank {} is lost", peer);
  }
  // Whether the peer has seen that this rank lives again.
  bool connected(int peer) const { return ring(peer, rank_).life.load(std::memory_order_acquire) == life_; }

  const std::string name_ = "shm";
  const int rank_;
  const int size_;
  const uint32_t life_;
  Memory memory_;
  Mapping mapping_;
  std::vector<Peer> peers_;
};

void ShmTransport::join(const ShmMessengerSetup& setup) {
  Deadline deadline = Deadline::after(setup.timeout);
  desk(rank_).pid.store(::getpid());
  desk(rank_).joined.store(1);
  shared::wake_all(desk(rank_).joined);
  for (int peer = 0; peer < size_; ++peer) {
    while (desk(peer).joined.load() == 0) {
      setup.failure->check("connecting messengers");
      if (deadline.passed())
        throw CommError("messenger of rank {}: rank {} has not come after {:.1f} s", rank_, peer,
                        deadline.elapsed());
      shared::sleep_on(desk(peer).joined, 0, 0.02);
    }
    if (peer != rank_) open_process(peer);
  }
}

// Peers see the new life and empty the rings between us; until then nothing is read or written.
void ShmTransport::come_back() {
  Desk& own = desk(rank_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    of(peer).life = desk(peer).life.load();
    if (!open_process(peer)) of(peer).lost = fmt::format("rank {} has ended", peer);
    if (of(peer).life != 0) of(peer).lost = fmt::format("rank {} was started again, too", peer);
  }
  own.pid.store(::getpid());
  own.asleep.store(0);
  own.left.store(0);
  own.life.store(life_);
}

int ShmTransport::returned(int peer) {
  uint32_t life = desk(peer).life.load();
  return life != of(peer).life ? static_cast<int>(life) : 0;
}

void ShmTransport::reopen(int peer) {
  Peer& state = of(peer);
  state.life = desk(peer).life.load();
  state.lost.clear();
  state.process = net::Descriptor();
  if (!open_process(peer)) state.lost = fmt::format("rank {} has ended", peer);
  state.has_head = false;
  for (Ring* one : {&ring(rank_, peer), &ring(peer, rank_)}) {
    one->written.store(0);
    one->read.store(0);
    one->writer_waits.store(0);
  }
  state.closed = false;
  ring(rank_, peer).life.store(state.life);
  notify(peer);
}

// Shared memory says nothing when its other user dies; a descriptor of the process does.
// False: it has ended already.
bool ShmTransport::open_process(int peer) {
  int64_t pid = desk(peer).pid.load();
  if (pid == ::getpid()) return true;  // a thread of this one: dies with us
  of(peer).process = net::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!of(peer).process && errno != ESRCH)
    throw CommError("messenger of rank {}: cannot watch process {} of rank {}: {}. Use tcp.", rank_, pid,
                    peer, describe_errno(errno));
  return static_cast<bool>(of(peer).process);
}

void ShmTransport::look_for_deaths() {
  memory_.serve_again(size_);
  for (int peer = 0; peer < size_; ++peer) {
    Peer& state = of(peer);
    if (peer == rank_ || !state.lost.empty()) continue;
    pollfd process{state.process.get(), POLLIN, 0};
    if (state.process && ::poll(&process, 1, 0) == 1)
      state.lost = fmt::format("rank {} (pid {}) has ended", peer, desk(peer).pid.load());
    if (desk(peer).left.load() != 0) state.lost = fmt::format("rank {} has left", peer);
  }
}

void ShmTransport::notify(int rank) const {
  Desk& other = desk(rank);
  // Pairs with wait(): either it sees what was written before this, or we see that it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (rank != rank_ && other.asleep.load(std::memory_order_relaxed) == 0) return;
  other.inbox.fetch_add(1);
  shared::wake_all(other.inbox);
}

void ShmTransport::wait(const std::vector<bool>& has_unwritten, double seconds) {
  Desk& own = desk(rank_);
  uint32_t seen = own.inbox.load();
  own.asleep.store(1);
  bool something = false;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || of(peer).closed || !connected(peer)) continue;
    Ring& out = ring(rank_, peer);
    Ring& in = ring(peer, rank_);
    if (has_unwritten[static_cast<size_t>(peer)]) out.writer_waits.store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    something |= in.written.load() != in.read.load(std::memory_order_relaxed);
    something |=
        has_unwritten[static_cast<size_t>(peer)] && out.written.load() - out.read.load() < kRingBytes / 2;
  }
  if (!something) shared::sleep_on(own.inbox, seen, seconds);
  own.asleep.store(0);
}

size_t ShmTransport::put(Ring& ring, const void* from, size_t bytes) const {
  uint64_t at = ring.written.load(std::memory_order_relaxed);
  size_t room = kRingBytes - static_cast<size_t>(at - ring.read.load(std::memory_order_acquire));
  size_t take = std::min(bytes, room);
  size_t begin = at & (kRingBytes - 1);
  size_t first = std::min(take, kRingBytes - begin);
  std::memcpy(ring.data + begin, from, first);
  if (take > first) std::memcpy(ring.data, static_cast<const std::byte*>(from) + first, take - first);
  ring.written.store(at + take, std::memory_order_release);
  return take;
}

size_t ShmTransport::get(Ring& ring, int from, void* to, size_t bytes) const {
  uint64_t at = ring.read.load(std::memory_order_relaxed);
  size_t there = static_cast<size_t>(ring.written.load(std::memory_order_acquire) - at);
  size_t take = std::min(bytes, there);
  if (take == 0) return 0;
  size_t begin = at & (kRingBytes - 1);
  size_t first = std::min(take, kRingBytes - begin);
  std::memcpy(to, ring.data + begin, first);
  if (take > first) std::memcpy(static_cast<std::byte*>(to) + first, ring.data, take - first);
  ring.read.store(at + take, std::memory_order_release);
  // Pairs with wait(): either the writer sees the room, or we see that it waits for some.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (ring.writer_waits.load(std::memory_order_relaxed) != 0 && ring.writer_waits.exchange(0) != 0)
    notify(from);
  return take;
}

bool ShmTransport::write(int peer, Outgoing& message) {
  check(peer);
  if (!connected(peer)) return false;
  Ring& out = ring(rank_, peer);
  if (!message.started()) {
    uint64_t used = out.written.load(std::memory_order_relaxed) - out.read.load(std::memory_order_acquire);
    if (kRingBytes - used < sizeof(WireHead)) return false;
    put(out, &message.head, sizeof(WireHead));
    message.state = 1;
  }
  while (message.offset < message.payload.size()) {
    size_t piece = std::min(kPiece, message.payload.size() - message.offset);
    size_t done = put(out, message.payload.data() + message.offset, piece);
    message.offset += done;
    notify(peer);
    if (done == 0) return false;
  }
  notify(peer);
  return true;
}

const WireHead* ShmTransport::next(int peer) {
  check(peer);
  Peer& state = of(peer);
  if (state.has_head) return &state.head;
  if (!connected(peer)) {
    if (!state.lost.empty()) throw CommError("{}", state.lost);
    return nullptr;
  }
  Ring& in = ring(peer, rank_);
  uint64_t there = in.written.load(std::memory_order_acquire) - in.read.load(std::memory_order_relaxed);
  if (there < sizeof(WireHead)) {
    if (there == 0 && !state.lost.empty()) throw CommError("{}", state.lost);
    return nullptr;
  }
  get(in, peer, &state.head, sizeof(WireHead));
  state.has_head = true;
  state.received = 0;
  return &state.head;
}

bool ShmTransport::read(int peer, std::span<std::byte> into) {
  check(peer);
  Peer& state = of(peer);
  while (state.received < into.size()) {
    size_t piece = std::min(kPiece, into.size() - state.received);
    size_t got = get(ring(peer, rank_), peer, into.data() + state.received, piece);
    if (got == 0 && !state.lost.empty()) throw CommError("{}", state.lost);
    if (got == 0) return false;
    state.received += got;
  }
  state.has_head = false;
  return true;
}

}  // namespace
}  // namespace messages

std::unique_ptr<Messenger> make_shm_messenger(const ShmMessengerSetup& setup) {
  YOKE_CHECK(setup.failure && setup.put && setup.get,
             "a messenger over shared memory needs failure, put and get");
  return std::make_unique<messages::MessengerCore>(setup, std::make_unique<messages::ShmTransport>(setup));
}

}  // namespace yoke::comm
