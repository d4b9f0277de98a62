// Open files from one process to others of the same user and machine, over a unix socket without a file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/failure.h"

namespace yoke::comm::shared {

// An open file that is closed at the end.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  File& operator=(File&& other) noexcept;
  ~File();
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Hands copies of files to every process that shows the token.
class FileServer {
 public:
  FileServer();  // throws CommError
  // What receive_files() needs: the socket's name and the token.
  const std::string& ticket() const { return ticket_; }
  // Serves ranks 1 to size - 1, each once. Strangers (another user, a wrong token, silence) are turned away
  // and do not stop it. Throws CommError: the job failed, or the deadline passed.
  void serve(const std::vector<File>& files, int size, const cluster::Failure& failure,
             const Deadline& deadline);
  // After serve(): hands the files to ranks that come again. Does not wait; to be called now and then.
  void serve_again(const std::vector<File>& files, int size);

 private:
  struct Caller {
    File socket;
    Deadline deadline;
  };
  bool knows(int socket, int size, int& rank) const;
  std::vector<Caller> callers_;  // that have not said who they are
  File listener_;
  std::string token_;
  std::string ticket_;
};

// Fetches `count` files from the server of `ticket`. Throws CommError.
std::vector<File> receive_files(const std::string& ticket, int rank, size_t count,
                                const cluster::Failure& failure, const Deadline& deadline);

}  // namespace yoke::comm::shared
