"""Names that want to be something else than text, or are hard to show."""

HOSTILE = [
    "<script>document.title='harm'</script>",
    "\"'><img src=x onerror=\"document.title='harm'\">",
    "</title></style></script><b>bold</b>",
    "a very long name " * 18,  # 306 letters
    "ثمن الفحص",
    "🩸 blood & <i>urine</i> 🧪",
    "line\nend\tand \u202eoverride",
    "{{7*7}} ${7*7} %s &amp; &lt;",
]
