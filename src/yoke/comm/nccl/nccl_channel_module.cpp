#include "yoke/comm/nccl/nccl_channel.h"

#include <algorithm>
#include <cstring>

namespace yoke::comm::nccl {
namespace {

constexpr uint64_t kEarly = ~uint64_t{0};
constexpr double kTaken = 30;  // seconds for NCCL to take a call once the channel stands

void compare(const Transfer& transfer, const Descriptor& theirs, int rank) {
  if (theirs.fingerprint() == transfer.fingerprint) return;
  throw MismatchError("{}", describe_mismatch(transfer.peer, theirs, rank, transfer.descriptor));
}

}  // namespace

Channel::Channel(const NcclSetup& setup, const std::string& key, bool sender)
    : setup_(setup), sender_(sender) {
  forming_ = std::thread([this, key] {
    try {
      form(key);
    } catch (...) {
      error_ = std::current_exception();
    }
    formed_.store(true, std::memory_order_release);
  });
}

Channel::~Channel() {
  forming_.join();
  if (event_ != nullptr) cudaEventDestroy(event_);
}

// The first message connects the two, which takes NCCL a while and both sides; later ones are taken at once.
void Channel::form(const std::string& key) {
  Deadline deadline = Deadline::after(setup_.timeout);
  std::string doing = "connecting " + key;
  group_ = std::make_unique<Group>(setup_, key, sender_ ? 0 : 1, 2, deadline);
  scratch_ = std::make_unique<Scratch>(sizeof(Header));
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  ncclResult_t result = sender_
                            ? ncclSend(scratch_->device(), 1, ncclUint8, 1, group_->comm(), group_->stream())
                            : ncclRecv(scratch_->device(), 1, ncclUint8, 0, group_->comm(), group_->stream());
  group_->call(result, sender_ ? "ncclSend" : "ncclRecv", doing, deadline);
  group_->finish(doing, 0, deadline);
}

bool Channel::advance(Transfer& transfer, int rank) {
  if (!formed_.load(std::memory_order_acquire)) return false;
  if (error_) std::rethrow_exception(error_);
  std::string doing = transfer.descriptor.text();
  group_->enter(doing);
  return sender_ ? send(transfer, doing) : receive(transfer, rank, doing);
}

bool Channel::send(Transfer& transfer, const std::string& doing) {
  if (owner_ == 0) {
    transfer.state = next_++;
    header_ = {transfer.descriptor, static_cast<int64_t>(transfer.bytes), transfer.tag};
    put_header(doing);
    begin_data(transfer.data, transfer.state, doing);
  }
  return owner_ == transfer.state && data_done(doing);
}

bool Channel::receive(Transfer& transfer, int rank, const std::string& doing) {
  if (take_early(transfer, rank, doing)) return true;
  if (owner_ == kEarly && data_done(doing)) return take_early(transfer, rank, doing);
  if (owner_ == 0 && header_there(doing)) {
    if (header_.tag == transfer.tag) {
      compare(transfer, header_.descriptor, rank);
      transfer.state = next_++;
      begin_data(transfer.data, transfer.state, doing);
    } else if (nobody_else_wants_it(transfer)) {
      Early& early = early_.emplace_back(Early{header_, device_memory(static_cast<size_t>(header_.bytes))});
      begin_data(early.data.get(), kEarly, doing);
    }
  }
  return owner_ != 0 && owner_ == transfer.state && data_done(doing);
}

bool Channel::take_early(Transfer& transfer, int rank, const std::string& doing) {
  auto found = std::ranges::find_if(early_, [&](const Early& e) { return e.header.tag == transfer.tag; });
  if (found == early_.end() || (owner_ == kEarly && &*found == &early_.back())) return false;
  compare(transfer, found->header.descriptor, rank);
  group_->follow_compute();
  check(
      cudaMemcpyAsync(transfer.data, found->data.get(), transfer.bytes, cudaMemcpyDefault, group_->stream()),
      "cudaMemcpyAsync");
  group_->finish(doing, transfer.bytes, Deadline::after(kTaken));
  early_.erase(found);
  return true;
}

bool Channel::header_there(const std::string& doing) {
  if (head_ == Head::kNone) get_header(doing);
  if (head_ == Head::kAsked && group_->passed(event_, doing)) {
    std::memcpy(static_cast<void*>(&header_), scratch_->host(), sizeof(Header));
    head_ = Head::kHere;
    refused_ = -1;
  }
  return head_ == Head::kHere;
}

// Transfers are asked in turn: when the same one is asked again, all others have looked at the header.
bool Channel::nobody_else_wants_it(const Transfer& transfer) {
  if (refused_ < 0) {
    refused_ = transfer.tag;
    return false;
  }
  return refused_ == transfer.tag;
}

void Channel::begin_data(void* data, uint64_t owner, const std::string& doing) {
  owner_ = owner;
  head_ = Head::kNone;
  auto bytes = static_cast<size_t>(header_.bytes);
  host_ = nullptr;
  if (bytes > 0) {
    group_->follow_compute();
    if (!on_device(data)) data = stage(data, bytes);
    ncclResult_t result = sender_ ? ncclSend(data, bytes, ncclUint8, 1, group_->comm(), group_->stream())
                                  : ncclRecv(data, bytes, ncclUint8, 0, group_->comm(), group_->stream());
    group_->call(result, sender_ ? "ncclSend" : "ncclRecv", doing, Deadline::after(kTaken));
  }
  group_->mark(event_);
}

// One message is under way at a time, so that one block is enough.
void* Channel::stage(void* host, size_t bytes) {
  void* device = block_.at_least(bytes);
  if (sender_)
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, group_->stream()), "cudaMemcpyAsync");
  else
    host_ = host;
  return device;
}

bool Channel::data_done(const std::string& doing) {
  if (!group_->passed(event_, doing)) return false;
  if (host_ != nullptr) {
    check(cudaMemcpyAsync(host_, block_.at_least(0), static_cast<size_t>(header_.bytes),
                          cudaMemcpyDeviceToHost, group_->stream()),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(group_->stream()), "cudaStreamSynchronize");
  }
  owner_ = 0;
  return true;
}

void Channel::put_header(const std::string& doing) {
  std::memcpy(scratch_->host(), &header_, sizeof(Header));
  scratch_->to_device(sizeof(Header), group_->stream());
  group_->call(ncclSend(scratch_->device(), sizeof(Header), ncclUint8, 1, group_->comm(), group_->stream()),
               "ncclSend", doing, Deadline::after(kTaken));
}

void Channel::get_header(const std::string& doing) {
  group_->call(ncclRecv(scratch_->device(), sizeof(Header), ncclUint8, 0, group_->comm(), group_->stream()),
               "ncclRecv", doing, Deadline::after(kTaken));
  scratch_->to_host(sizeof(Header), group_->stream());
  group_->mark(event_);
  head_ = Head::kAsked;
}

}  // namespace yoke::comm::nccl
