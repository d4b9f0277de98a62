#include "yoke/net/protect.h"

#include <openssl/evp.h>

#include "yoke/base/error.h"
#include "yoke/kernels/crc32c.h"
#include "yoke/net/wire.h"

namespace yoke::net {
namespace {

unsigned char* bytes_of(std::byte* at) {
  return reinterpret_cast<unsigned char*>(at);
}
const unsigned char* bytes_of(const std::byte* at) {
  return reinterpret_cast<const unsigned char*>(at);
}

}  // namespace

HeaderSeal::HeaderSeal(Protection protection, const DirectionKey& key)
    : keyed_(protection != Protection::kNone), key_(sip_key(std::span(key).first<16>())) {}

uint64_t HeaderSeal::over(std::span<const std::byte, kFrameHeaderBytes> header) const {
  if (keyed_) return siphash(key_, header.first<kFrameMacOffset>());
  return kernels::crc32c(header.data(), kFrameMacOffset);
}

void BlockCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  ::EVP_CIPHER_CTX_free(context);
}

BlockCipher::BlockCipher(const DirectionKey& key, Way way) : context_(::EVP_CIPHER_CTX_new()), way_(way) {
  bool good = context_ != nullptr &&
              ::EVP_CipherInit_ex(context_.get(), ::EVP_aes_128_gcm(), nullptr, bytes_of(key.data()) + 16,
                                  nullptr, way == Way::kEncrypt ? 1 : 0) == 1;
  YOKE_CHECK(good, "OpenSSL cannot initialize AES-128-GCM");
}

void BlockCipher::start(Bytes header) {
  std::array<std::byte, 12> nonce{};
  wire::put(nonce.data(), blocks_++);
  int length = 0;
  bool good = ::EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, bytes_of(nonce.data()),
                                  way_ == Way::kEncrypt ? 1 : 0) == 1 &&
              ::EVP_CipherUpdate(context_.get(), nullptr, &length, bytes_of(header.data()),
                                 static_cast<int>(header.size())) == 1;
  YOKE_CHECK(good, "OpenSSL refuses a nonce");
}

void BlockCipher::encrypt(std::byte* to, Bytes plain, Bytes header, std::byte* tag) {
  start(header);
  int length = 0;
  unsigned char unused[16];
  bool good = ::EVP_EncryptUpdate(context_.get(), bytes_of(to), &length, bytes_of(plain.data()),
                                  static_cast<int>(plain.size())) == 1 &&
              ::EVP_EncryptFinal_ex(context_.get(), unused, &length) == 1 &&
              ::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag) == 1;
  YOKE_CHECK(good, "OpenSSL cannot encrypt {} bytes", plain.size());
}

bool BlockCipher::decrypt(std::span<std::byte> block, Bytes header, const std::byte* tag) {
  start(header);
  int length = 0;
  unsigned char unused[16];
  return ::EVP_DecryptUpdate(context_.get(), bytes_of(block.data()), &length, bytes_of(block.data()),
                             static_cast<int>(block.size())) == 1 &&
         ::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes,
                               const_cast<std::byte*>(tag)) == 1 &&
         ::EVP_DecryptFinal_ex(context_.get(), unused, &length) == 1;
}

}  // namespace yoke::net
