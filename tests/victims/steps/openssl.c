/* Hand-written assembly of OpenSSL. Contexts are made before, so that the steps go into what computes. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* As declared by OpenSSL 3; its headers need not be installed. */
typedef void any;
extern int EVP_DigestInit_ex(any *, const any *, any *), EVP_DigestUpdate(any *, const any *, size_t);
extern int EVP_DigestFinal_ex(any *, unsigned char *, unsigned *);
extern any *EVP_MD_CTX_new(void), *EVP_CIPHER_CTX_new(void);
extern any *EVP_MD_fetch(any *, const char *, const char *), *EVP_CIPHER_fetch(any *, const char *, const char *);
extern int EVP_EncryptInit_ex(any *, const any *, any *, const unsigned char *, const unsigned char *);
extern int EVP_EncryptUpdate(any *, unsigned char *, int *, const unsigned char *, int);
extern int EVP_DecryptInit_ex(any *, const any *, any *, const unsigned char *, const unsigned char *);
extern int EVP_DecryptUpdate(any *, unsigned char *, int *, const unsigned char *, int);
extern any *BN_new(void), *BN_CTX_new(void), *BN_MONT_CTX_new(void);
extern int BN_set_word(any *, unsigned long), BN_set_bit(any *, int), BN_MONT_CTX_set(any *, const any *, any *);
extern int BN_mod_exp_mont_consttime(any *, const any *, const any *, const any *, any *, any *);
extern int BN_mod_exp_mont(any *, const any *, const any *, const any *, any *, any *);
extern int BN_mul(any *, const any *, const any *, any *), BN_sqr(any *, const any *, any *);
extern int BN_GF2m_mod_mul(any *, const any *, const any *, const any *, any *);
extern any *EC_GROUP_new_by_curve_name(int), *EC_POINT_new(const any *);
extern int EC_POINT_mul(const any *, any *, const any *, const any *, const any *, any *);
extern void RC4_set_key(any *, int, const unsigned char *), RC4(any *, size_t, const unsigned char *, unsigned char *);
extern void Camellia_cbc_encrypt(const unsigned char *, unsigned char *, size_t, const any *, unsigned char *, int);
extern int Camellia_set_key(const unsigned char *, int, any *);
extern int AES_set_encrypt_key(const unsigned char *, int, any *);
extern void AES_cbc_encrypt(const unsigned char *, unsigned char *, size_t, const any *, unsigned char *, int);
extern unsigned char *WHIRLPOOL(const any *, size_t, unsigned char *);
extern int CRYPTO_memcmp(const any *, const any *, size_t);
extern void OPENSSL_cleanse(any *, size_t);

#define CHECK(ok) do { if (!(ok)) abort(); } while (0)

static unsigned char in[8192], out[8192], other[8192], key[64], iv[16];

static const char *const digest_names[] = {"SHA1", "SHA256", "SHA512", "MD5", "SHA3-256"};
static const char *const cipher_names[] = {
    "AES-128-CBC", "AES-128-ECB", "AES-128-XTS", "AES-128-OCB", "AES-128-CCM", "AES-256-CTR", "AES-256-GCM", "ChaCha20", "ChaCha20-Poly1305"};
enum { DIGESTS = sizeof digest_names / sizeof *digest_names, CIPHERS = sizeof cipher_names / sizeof *cipher_names };
static any *digest[DIGESTS], *encrypt[CIPHERS], *decrypt[CIPHERS];
static any *context, *numbers[4], *result, *odd[2], *montgomery[2], *exponent, *field, *group, *product;

static void prepare_digests(void) {
  for (int i = 0; i < DIGESTS; i++) {
    digest[i] = EVP_MD_CTX_new();
    CHECK(EVP_DigestInit_ex(digest[i], EVP_MD_fetch(0, digest_names[i], 0), 0));
  }
}

void digests(void) {
  unsigned len;
  for (int i = 0; i < DIGESTS; i++) {
    /* Less than a block, some blocks, and enough for code that takes several at a time. */
    CHECK(EVP_DigestUpdate(digest[i], in, 13) && EVP_DigestUpdate(digest[i], in, 300));
    CHECK(EVP_DigestFinal_ex(digest[i], out, &len));
  }
  WHIRLPOOL(in, 100, out);
}

static void prepare_ciphers(void) {
  for (size_t i = 0; i < sizeof key; i++) key[i] = (unsigned char)(7 * i);
  for (int i = 0; i < CIPHERS; i++) {
    any *cipher = EVP_CIPHER_fetch(0, cipher_names[i], 0);
    encrypt[i] = EVP_CIPHER_CTX_new();
    decrypt[i] = EVP_CIPHER_CTX_new();
    CHECK(EVP_EncryptInit_ex(encrypt[i], cipher, 0, key, iv) && EVP_DecryptInit_ex(decrypt[i], cipher, 0, key, iv));
  }
}

static void messages(int first, int end) {
  static const int sizes[] = {16, 112, 304, 1040};
  int len;
  for (int i = first; i < end; i++) {
    for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
      /* CCM takes one message, the others a stream. What comes out does not matter. */
      EVP_EncryptUpdate(encrypt[i], out, &len, in, sizes[j]);
      EVP_DecryptUpdate(decrypt[i], other, &len, out, sizes[j]);
    }
  }
}

void ciphers_of_blocks(void) {
  unsigned char schedule[512];
  AES_set_encrypt_key(key, 128, schedule);
  AES_cbc_encrypt(in, out, 64, schedule, iv, 1);
  Camellia_set_key(key, 128, schedule);
  Camellia_cbc_encrypt(in, out, 64, schedule, iv, 1);
  CHECK(CRYPTO_memcmp(in, in, 100) == 0);
  OPENSSL_cleanse(out, 100);
  messages(0, 5);
}

void ciphers_of_streams(void) { messages(5, CIPHERS); }

/* RC4 has a larger context. */
void rc4(void) {
  static unsigned schedule[1024];
  RC4_set_key(schedule, 16, key);
  RC4(schedule, 300, in, out);
}

static void prepare_numbers(void) {
  CHECK((context = BN_CTX_new()) && (result = BN_new()) && (field = BN_new()) && (exponent = BN_new()));
  for (int i = 0; i < 4; i++) {
    numbers[i] = BN_new();
    BN_set_word(numbers[i], 0x1234567 + i);
    for (int bit = 40; bit < 500; bit += 3 + i) BN_set_bit(numbers[i], bit);
  }
  for (int i = 0; i < 2; i++) {
    odd[i] = BN_new();
    BN_set_word(odd[i], 0xf1);
    for (int bit = 30; bit < (512 << i); bit += 7) BN_set_bit(odd[i], bit);
    BN_set_bit(odd[i], (512 << i) - 1);
    montgomery[i] = BN_MONT_CTX_new();
    CHECK(BN_MONT_CTX_set(montgomery[i], odd[i], context));
  }
  CHECK(BN_set_word(exponent, 11));
  /* x^571 + x^10 + x^5 + x^2 + 1 */
  static const int terms[] = {571, 10, 5, 2, 0};
  for (int i = 0; i < 5; i++) BN_set_bit(field, terms[i]);
  CHECK((group = EC_GROUP_new_by_curve_name(415)) && (product = EC_POINT_new(group)));
}

static void powers(int size) {
  CHECK(BN_mod_exp_mont(result, numbers[0], exponent, odd[size], context, montgomery[size]));
  CHECK(BN_mod_exp_mont_consttime(result, numbers[1], exponent, odd[size], context, montgomery[size]));
}

void numbers_of_512_bits(void) {
  CHECK(BN_mul(result, numbers[0], numbers[1], context) && BN_sqr(result, numbers[2], context));
  CHECK(BN_GF2m_mod_mul(result, numbers[0], numbers[1], field, context));
  powers(0);
}

/* For half the size of common keys, there is code of its own. */
void numbers_of_1024_bits(void) { powers(1); }

void curve(void) { CHECK(EC_POINT_mul(group, product, numbers[0], 0, 0, context)); }

void prepare(void) {
  prepare_digests();
  prepare_ciphers();
  prepare_numbers();
}
