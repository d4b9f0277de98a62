#include "yoke/comm/mpi/mpi_transfers.h"

#include <algorithm>

#include "yoke/comm/modules/traffic.h"

namespace yoke::comm::mpi {
namespace {

constexpr size_t kPiece = size_t{1} << 30;  // MPI counts are int

}  // namespace

Transfers::Transfers(Library& library, MPI_Comm comm, int rank, std::shared_ptr<cluster::Failure> failure)
    : library_(library), comm_(comm), rank_(rank), failure_(std::move(failure)) {}

bool Transfers::advance(Transfer& transfer) {
  std::lock_guard lock(mutex_);
  if (failure_ && failure_->set()) failure_->check(transfer.descriptor.text().c_str());
  if (!library_.usable())
    throw CommError("{}: MPI is not usable after an earlier failure", transfer.descriptor.text());
  if (transfer.state == 0) begin(transfer);
  Notes& notes = *notes_.at(transfer.state);
  if (!complete(notes)) return false;
  if (!notes.data_posted) {
    compare(transfer, notes);
    post_data(transfer, notes);
    if (!complete(notes)) return false;
  }
  transfer.offset = transfer.bytes;
  auto bytes = static_cast<int64_t>(transfer.bytes);
  counters_ += transfer.is_send ? Counters{1, bytes, 0, 1} : Counters{1, 0, bytes, 0};
  notes_.erase(transfer.state);
  return true;
}

void Transfers::begin(Transfer& transfer) {
  transfer.state = next_++;
  Notes& notes = *notes_.emplace(transfer.state, std::make_unique<Notes>()).first->second;
  notes.requests.resize(1);
  constexpr int kBytes = sizeof(Descriptor);
  if (transfer.is_send) {
    notes.theirs = transfer.descriptor;
    check(MPI_Isend(&notes.theirs, kBytes, MPI_BYTE, transfer.peer, transfer.tag, comm_, &notes.requests[0]),
          "MPI_Isend");
    post_data(transfer, notes);
  } else {
    check(MPI_Irecv(&notes.theirs, kBytes, MPI_BYTE, transfer.peer, transfer.tag, comm_, &notes.requests[0]),
          "MPI_Irecv");
  }
}

void Transfers::post_data(const Transfer& transfer, Notes& notes) {
  for (size_t at = 0; at < transfer.bytes; at += kPiece) {
    auto bytes = static_cast<int>(std::min(kPiece, transfer.bytes - at));
    MPI_Request& request = notes.requests.emplace_back(MPI_REQUEST_NULL);
    std::byte* data = transfer.data + at;
    if (transfer.is_send)
      check(MPI_Isend(data, bytes, MPI_BYTE, transfer.peer, transfer.tag, comm_, &request), "MPI_Isend");
    else
      check(MPI_Irecv(data, bytes, MPI_BYTE, transfer.peer, transfer.tag, comm_, &request), "MPI_Irecv");
  }
  notes.data_posted = true;
}

void Transfers::compare(const Transfer& transfer, const Notes& notes) {
  if (notes.theirs.fingerprint() == transfer.fingerprint) return;
  throw MismatchError("{}", describe_mismatch(transfer.peer, notes.theirs, rank_, transfer.descriptor));
}

bool Transfers::complete(Notes& notes) {
  int done = 0;
  check(
      MPI_Testall(static_cast<int>(notes.requests.size()), notes.requests.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  return done != 0;
}

// Whether advance() would make progress: all requests are done. Does not release them
// (MPI_Request_get_status).
bool Transfers::ready(const Transfer& transfer) {
  auto found = notes_.find(transfer.state);
  if (found == notes_.end()) return true;
  return std::ranges::all_of(found->second->requests, [](MPI_Request request) {
    int done = 0;
    check(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    return done != 0;
  });
}

void Transfers::wait_for(std::span<Transfer* const> transfers, Deadline deadline) {
  std::unique_lock lock(mutex_);
  int sleep_us = 0;
  for (int looks = 0; !wake_; looks++) {
    if (deadline.passed() || (failure_ && failure_->set()) || !library_.usable()) break;
    if (std::ranges::any_of(transfers, [&](const Transfer* t) { return ready(*t); })) break;
    sleep_us = looks < 64 ? 0 : std::clamp(sleep_us * 3 / 2, 20, 1000);
    woken_.wait_for(lock, std::chrono::microseconds(sleep_us), [&] { return wake_; });
  }
  wake_ = false;
}

void Transfers::wake() {
  {
    std::lock_guard lock(mutex_);
    wake_ = true;
  }
  woken_.notify_all();
}

Counters Transfers::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace yoke::comm::mpi
