"""Signing keys of the fuzzers: fixed, so that a failing input fails again. They protect nothing.

Two keys are the provider's own (pinned), the third is an attacker's.
"""

from cryptography.hazmat.primitives.asymmetric import rsa

_PUBLIC_EXPONENT = 65_537

_PRIMES = (
    (
        int(
            "f0b142a8831b125728321ce047ce8bebfb423d2e1f4a523aeb680a497c8d580c17e99c6ba652e3d1"
            "83360dc2c9f7633740306b80a6105e7b2d5cee96825c5e19fcb1a6333b2314169c2f1ec89c8fa8b2"
            "d47055cbc4f3516e8786a175ddfa634ca2b7620312bbee61e9dcce8657fe235845817d9c3e35f4d8"
            "754c86db2dde282d",
            16,
        ),
        int(
            "d003758f68a3587611a7bf9cfdbd4571e72825a9203fefe9198e1c827526ef45cee497fd9f6573da"
            "64156df00fb6c718804cc9a9814fe5d5d2a6dda519744776be3c93b90c9a152e33fa29e25c3c3ba6"
            "67ecff07c384ef642aff9de6eabcffefbaa2ecb16122169435f1fb8f00614e1d913e6219e614ac9e"
            "0a2a9fe713372ffb",
            16,
        ),
    ),
    (
        int(
            "fa23156d8bc14e6a78d709e10f1c9e1a4ec4290369eac80fca85ed59f223379b53eb588ad67b4d5f"
            "ef216c8ae58493adc784dad4cc37f85863282d94fd6e9e581e4b54f59b127d41b3b048625594ffb1"
            "a2f578f97b3cc7f70a567a7c328e072ba29e42c96c8d79e73b3c817a1bc78c7267b6faf30d041096"
            "96f8525ba488c107",
            16,
        ),
        int(
            "f92c5ce1832b2b97a525bd18d69fb8454afd20a0c60227f458143f676b0f313cce53c5274c48f347"
            "df1332a240af51f3c68b50d5462cd2fec12073cccd2f26c0328e2dbe54a82e17ec09c37ee836d7a4"
            "bb1ff1691a0a0396343f755c417a39698043135b6082d79434c29e5189af36a8de263bef2427d2d8"
            "ebed3f93f2349af7",
            16,
        ),
    ),
    (
        int(
            "f935f7d85b9facd3cc69018584db977222ef24fb0e20b39e01ee7fdd480ab95df1a44de217bfe179"
            "aac3d5e1b4acbc5e2c5d69b1bd4df40b0d9618d96221cf83405b98f878cc3bd22ebe47818afb2af9"
            "c9ab67a7a3ba18e944236894bda46644fd1f41c9e44f68dbcb164b5e2ae14f70d9d3b9f3b5f0e83e"
            "26661a98b9d75d59",
            16,
        ),
        int(
            "bb7c68c07fd4a73aaa8439169bcce5ab45679f0ca824742d10a1231c3330282c083140c6976e1b64"
            "65348a878008fc2250ed69848a3b34ba8e5c71336bbe8fbc1e071a78e89dd185dce279a641af1a7e"
            "2b138ca14d84bf5a68e19e23cabab4d070d8aa520117347190aeafdc969db7991559b2cdf1ba5020"
            "5bb3b2e7c6e8cfe5",
            16,
        ),
    ),
)


def key(number: int) -> rsa.RSAPrivateKey:
    """Key 0, 1 or 2: RSA of 2,048 bits."""
    p, q = _PRIMES[number]
    private = pow(_PUBLIC_EXPONENT, -1, (p - 1) * (q - 1))
    return rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=private,
        dmp1=rsa.rsa_crt_dmp1(private, p),
        dmq1=rsa.rsa_crt_dmq1(private, q),
        iqmp=rsa.rsa_crt_iqmp(p, q),
        public_numbers=rsa.RSAPublicNumbers(_PUBLIC_EXPONENT, p * q),
    ).private_key()
