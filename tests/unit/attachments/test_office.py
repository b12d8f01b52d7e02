"""Word, Excel, PowerPoint and OpenDocument as people write them, with what naive readers miss."""

from __future__ import annotations

import pytest

from tests.attachment_files import docx, inline, opendocument, pptx, rels, shape, xlsb, xlsx, zipped
from tests.unit.attachments.reading import answer, fault_of, meta_of, text_of

RUN = "<w:r><w:t>{}</w:t></w:r>"


def paragraph(text: str) -> str:
    return f"<w:p>{RUN.format(text)}</w:p>"


class TestWord:
    def test_paragraphs_are_lines_and_tables_are_rows(self) -> None:
        row = "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in ("姓名", "年龄")) + "</w:tr>"
        text = text_of(docx(body=paragraph("标题 & 副标题".replace("&", "&amp;")) + f"<w:tbl>{row}</w:tbl>"))
        assert text == "标题 & 副标题\n姓名 | 年龄 |"

    def test_a_text_box_is_read_once_although_it_is_stored_twice(self) -> None:
        choice = f"<mc:Choice><w:txbxContent>{paragraph('框内')}</w:txbxContent></mc:Choice>"
        fallback = f"<mc:Fallback><w:txbxContent>{paragraph('框内')}</w:txbxContent></mc:Fallback>"
        box = f"<w:p><w:r><mc:AlternateContent>{choice}{fallback}</mc:AlternateContent></w:r></w:p>"
        assert text_of(docx(body=f'<w:x xmlns:mc="m">{box}</w:x>')).count("框内") == 1
        only = box.replace("框内", "", 1)
        assert text_of(docx(body=f'<w:x xmlns:mc="m">{only}</w:x>')).count("框内") == 1

    def test_content_controls_are_read_and_deleted_or_hidden_machinery_is_not(self) -> None:
        body = (
            f"<w:sdt><w:sdtContent>{paragraph('控件内')}</w:sdtContent></w:sdt>"
            f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:del><w:r><w:delText>删去</w:delText></w:r></w:del>"
            f"<w:r><w:instrText>PAGE</w:instrText></w:r>{RUN.format('留下')}</w:p>"
        )
        assert text_of(docx(body=body)) == "控件内\n留下"

    def test_hidden_text_is_not_shown(self) -> None:
        hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>隐藏</w:t></w:r>"
        shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>可见</w:t></w:r>'
        assert text_of(docx(body=f"<w:p>{hidden}{shown}{RUN.format('之后')}</w:p>")) == "可见之后"

    def test_notes_headers_and_comments_follow_the_body(self) -> None:
        more = {
            "word/_rels/document.xml.rels": rels(("a", "footnotes", "footnotes.xml"), ("b", "header", "header1.xml")),
            "word/footnotes.xml": f'<w:footnotes xmlns:w="w">{paragraph("脚注")}</w:footnotes>',
            "word/header1.xml": f'<w:hdr xmlns:w="w">{paragraph("页眉")}</w:hdr>',
        }
        assert text_of(docx("正文", more=more)).split() == ["正文", "脚注", "页眉"]

    def test_dead_and_external_relations_do_not_matter(self) -> None:
        dead = rels(("a", "image", "NULL"), ("b", "header", "missing.xml")).replace(
            "</Relationships>",
            '<Relationship Id="c" Type="x/image" Target="http://127.0.0.1/x" TargetMode="External"/></Relationships>',
        )
        assert text_of(docx("正文", more={"word/_rels/document.xml.rels": dead})) == "正文"

    def test_strict_files_other_names_of_the_main_part_and_backslashes_work(self) -> None:
        namespace = "http://purl.oclc.org/ooxml/wordprocessingml/main"
        body = f'<x:document xmlns:x="{namespace}"><x:p><x:t>严格</x:t></x:p></x:document>'
        package = zipped(
            {
                "[Content_Types].xml": "<Types/>",
                "_rels/.rels": rels(("r", "officeDocument", "/word/document2.xml")),
                "word\\document2.xml": body,
            }
        )
        assert text_of(package) == "严格"

    def test_a_page_put_into_the_package_by_a_converter_is_read(self) -> None:
        more = {
            "word/_rels/document.xml.rels": rels(("a", "aFChunk", "chunk.htm")),
            "word/chunk.htm": "<html><meta charset=utf-8><body><p>网页转来的正文</p></body></html>",
        }
        assert "网页转来的正文" in text_of(docx("", more=more))

    def test_the_number_of_pages_is_told_when_the_file_says_it(self) -> None:
        assert (
            meta_of(docx("x", more={"docProps/app.xml": "<Properties><Pages>12</Pages></Properties>"}))["pageCount"]
            == 12
        )

    def test_a_document_of_pictures_only_has_no_text_layer(self) -> None:
        assert fault_of(docx(body="<w:p><w:r><w:drawing/></w:r></w:p>")) == "NO_TEXT_LAYER"

    def test_a_document_without_main_part_or_with_broken_xml_is_corrupt(self) -> None:
        assert fault_of(zipped({"[Content_Types].xml": "<Types/>", "word/styles.xml": "<x/>"})) == "CORRUPT"
        assert fault_of(docx(body="<w:p><w:r></w:p>")) == "CORRUPT"

    def test_text_before_a_damaged_place_is_shown_as_incomplete(self) -> None:
        found = answer(docx(body=paragraph("前半") + "<w:p><w:r></w:p>"))
        assert found["text"] == "前半"
        assert found["truncated"] is True
        assert meta_of(docx(body=paragraph("前半") + "<w:p></w:r>"))["incomplete"] == "CORRUPT"


class TestSheets:
    def test_data_below_a_wide_gap_is_found(self) -> None:
        gap = "".join(f'<row r="{n}" spans="1:8"/>' for n in range(2, 60_000))
        rows = f'<row r="1">{inline("A1", "上")}</row>{gap}<row r="60000">{inline("A60000", "下")}</row>'
        assert text_of(xlsx({"表": rows})) == "[表]\n上\n下"

    def test_empty_styled_cells_do_not_hide_values_among_them(self) -> None:
        rows = "".join(
            f'<row r="{n}"><c r="A{n}" s="1"/><c r="B{n}" s="1"/>'
            + (inline(f"C{n}", f"第{n}行") if n % 900 == 1 else "")
            + "</row>"
            for n in range(1, 9000)
        )
        text = text_of(xlsx({"表": rows}))
        assert [line.strip() for line in text.splitlines()[1:]] == [f"第{n}行" for n in range(1, 9000, 900)]

    def test_a_long_first_sheet_leaves_room_for_the_others(self) -> None:
        long = "".join(f'<row r="{n}">{inline(f"A{n}", f"第一张表的第{n}行")}</row>' for n in range(1, 3000))
        found = answer(xlsx({"一": long, "二": f'<row r="1">{inline("A1", "第二张")}</row>', "三": long}))
        assert found["truncated"] is True
        assert all(
            part in str(found["text"]) for part in ("[一]\n第一张表的第1行", "[二]\n第二张", "[三]\n第一张表的第1行")
        )
        assert len(str(found["text"])) <= 8000

    def test_shared_strings_dates_and_numbers_show_as_people_see_them(self) -> None:
        cells = (
            '<c r="A1" t="s"><v>1</v></c><c r="B1" s="1"><v>43363</v></c><c r="C1" s="2"><v>43363.5</v></c>'
            '<c r="D1"><v>0.30000000000000004</v></c><c r="E1"><v>1E3</v></c><c r="F1" t="b"><v>1</v></c>'
            '<c r="G1" t="str"><f>A1</f><v>公式</v></c><c r="H1" t="e"><v>#N/A</v></c><c r="I1" t="s"><v>99</v></c>'
        )
        styles = (
            '<styleSheet><numFmts><numFmt numFmtId="170" formatCode="yyyy&quot;年&quot;m/d h:mm"/></numFmts>'
            '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
            '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/></cellXfs></styleSheet>'
        )
        strings = "<sst><si><t>零</t></si><si><r><t>拼</t></r><r><t>接</t></r><rPh><t>よみ</t></rPh></si></sst>"
        more = {"xl/styles.xml": styles, "xl/sharedStrings.xml": strings}
        line = text_of(xlsx({"表": f'<row r="1">{cells}</row>'}, more=more)).splitlines()[1]
        assert line.split("\t") == ["拼接", "2018-09-20", "2018-09-20 12:00", "0.3", "1000", "TRUE", "公式", "#N/A"]

    def test_a_formula_that_nobody_calculated_is_shown_itself(self) -> None:
        cells = '<c r="A1"><f>B2*C2</f></c><c r="B1"><f>SUM(A1)</f><v>7</v></c><c r="C1"><f>1</f><v></v></c>'
        assert text_of(xlsx({"表": f'<row r="1">{cells}</row>'})) == "[表]\n=B2*C2\t7\t=1"
        many = "".join(f'<row r="{n}"><c r="A{n}"><f>B{n}</f></c></row>' for n in range(1, 4000))
        assert "=B1\n=B2\n" in text_of(xlsx({"表": many}))

    def test_percents_and_durations_show_as_people_see_them(self) -> None:
        styles = (
            '<styleSheet><numFmts><numFmt numFmtId="170" formatCode="[h]:mm:ss"/>'
            '<numFmt numFmtId="171" formatCode="0.0%"/><numFmt numFmtId="172" formatCode="[Red]0.00"/></numFmts>'
            '<cellXfs><xf numFmtId="170"/><xf numFmtId="171"/>'
            '<xf numFmtId="9"/><xf numFmtId="172"/></cellXfs></styleSheet>'
        )
        values = enumerate(("1.25", "0.155", "2", "0.5"))
        cells = "".join(f'<c s="{style}"><v>{value}</v></c>' for style, value in values)
        assert (
            text_of(xlsx({"表": f"<row>{cells}</row>"}, {"xl/styles.xml": styles}))
            == "[表]\n30:00:00\t15.5%\t200%\t0.5"
        )

    def test_the_1904_epoch_is_minded(self) -> None:
        styles = '<styleSheet><cellXfs><xf numFmtId="14"/></cellXfs></styleSheet>'
        file = xlsx({"a": '<row><c s="0"><v>1</v></c></row>'}, {"xl/styles.xml": styles}, '<workbookPr date1904="1"/>')
        assert "1904-01-02" in text_of(file)

    def test_a_workbook_without_relations_still_shows_its_sheets_by_name(self) -> None:
        file = xlsx({"甲": f"<row>{inline('A1', '值')}</row>"}, {"xl/_rels/workbook.xml.rels": rels()})
        assert text_of(file) == "[甲]\n值"

    def test_line_ends_in_a_cell_do_not_break_its_row(self) -> None:
        more = {"xl/sharedStrings.xml": "<sst><si><t>三_x000D_\n四</t></si></sst>"}
        cells = inline("A1", "一_x000D_\n二") + '<c r="B1" t="s"><v>0</v></c>' + inline("C1", "_xyz_")
        assert text_of(xlsx({"表": f"<row>{cells}</row>"}, more)) == "[表]\n一 二\t三 四\t_xyz_"

    def test_comments_and_shapes_follow_the_sheets(self) -> None:
        comment = "<comment><text><r><t>{}</t></r></text></comment>"
        comments = f"<comments>{comment.format('批注一')}{comment.format('批注二')}</comments>"
        drawing = f"<xdr:wsDr>{shape('图形里的字').replace('p:', 'xdr:')}</xdr:wsDr>"
        more = {"xl/comments1.xml": comments, "xl/drawings/drawing1.xml": drawing}
        text = text_of(xlsx({"a": f"<row>{inline('A1', '值')}</row>"}, more))
        assert text.split() == ["[a]", "值", "批注一", "批注二", "图形里的字"]

    def test_a_sheet_without_any_value_is_empty(self) -> None:
        assert fault_of(xlsx({"a": '<row r="1"/>'})) == "EMPTY_FILE"


class TestBinarySheets:
    def test_shared_and_own_texts_numbers_and_dates(self) -> None:
        file = xlsb("数据", [["共享", "自己的" * 100], [-3, 0.5, 43363.0]], ["别的", "共享"])
        assert text_of(file) == f"[数据]\n共享\t{'自己的' * 100}\n-3\t0.5\t2018-09-20"
        assert meta_of(file)["detectedType"] == "xlsb"

    def test_many_rows_end_early(self) -> None:
        found = answer(xlsb("a", [["一二三四五", float(n)] for n in range(20_000)], []))
        assert found["truncated"] is True
        assert 7_900 < len(str(found["text"])) <= 8_000


class TestSlides:
    def test_slides_come_in_the_order_of_the_presentation_with_tables_and_notes(self) -> None:
        table = "<a:tbl><a:tr><a:tc><a:p><a:r><a:t>格</a:t></a:r></a:p></a:tc></a:tr></a:tbl>"
        more = {
            "ppt/slides/_rels/slide2.xml.rels": rels(("n", "notesSlide", "../notesSlides/notesSlide1.xml")),
            "ppt/notesSlides/notesSlide1.xml": f"<p:notes>{shape('备注')}</p:notes>",
        }
        placeholder_without_body = "<p:sp><p:nvSpPr/></p:sp>"
        file = pptx(shape("首页") + table, placeholder_without_body + shape("次页"), more=more)
        assert text_of(file).replace("\n", " ").split() == ["[1]", "首页", "格", "|", "备注", "[2]", "次页"]
        assert meta_of(file)["slideCount"] == 2

    def test_slides_of_pictures_only_have_no_text_layer(self) -> None:
        assert fault_of(pptx("<p:pic/>", "<p:pic/>")) == "NO_TEXT_LAYER"
        assert text_of(pptx("<p:pic/>", shape("次页"))) == "[2] 次页"


FLAT = (
    '<?xml version="1.0"?><office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'office:mimetype="application/vnd.oasis.opendocument.{}">{}<office:body>{}</office:body></office:document>'
)


class TestFlatFiles:
    """Office documents saved as one XML file: their text, not their styles and properties."""

    def test_flat_open_document_text_and_sheets(self) -> None:
        styles = "<office:styles><text:p>样式</text:p></office:styles>"
        assert text_of(FLAT.format("text", styles, "<text:p>正文</text:p>").encode(), "a.fodt") == "正文"
        row = "<table:table-row><table:table-cell><text:p>值</text:p></table:table-cell></table:table-row>"
        sheet = FLAT.format("spreadsheet", styles, f'<table:table table:name="表">{row}</table:table>')
        assert text_of(sheet.encode(), "a.fods") == "[表]\n值"

    def test_a_workbook_of_excel_2003(self) -> None:
        cell = '<Cell{}><Data ss:Type="String">{}</Data></Cell>'
        fourth = cell.format(' ss:Index="4"', "年龄")
        rows = f"<Row>{cell.format('', '姓名')}{fourth}</Row><Row/>"
        book = (
            '<?xml version="1.0"?><Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet">'
            "<Styles><Style>9</Style></Styles>"
            f'<Worksheet ss:Name="名单"><Table>{rows}</Table></Worksheet></Workbook>'
        )
        assert text_of(book.encode(), "a.xml") == "[名单]\n姓名\t\t\t年龄"
        assert meta_of(book.encode(), "a.xml")["sheets"] == ["名单"]

    def test_a_package_in_one_file_and_an_ordinary_document_element(self) -> None:
        part = (
            f"<pkg:part><pkg:xmlData>{paragraph('正文')}</pkg:xmlData></pkg:part><pkg:binaryData>QUJD</pkg:binaryData>"
        )
        mark = 'xmlns:pkg="http://schemas.microsoft.com/office/2006/xmlPackage"'
        assert text_of(f'<?xml version="1.0"?><pkg:package {mark}>{part}</pkg:package>'.encode()) == "正文"
        assert "内容" in text_of(b'<?xml version="1.0"?><document><p>' + "内容</p></document>".encode(), "a.xml")


class TestOpenDocument:
    def test_text_with_spaces_tabs_tables_and_without_deletions(self) -> None:
        content = (
            "<text:tracked-changes><text:p>删去</text:p></text:tracked-changes><text:h>标题</text:h>"
            '<text:p>甲<text:s text:c="2"/>乙<text:tab/>丙</text:p>'
            "<table:table><table:table-row><table:table-cell><text:p>格</text:p></table:table-cell></table:table-row></table:table>"
        )
        assert text_of(opendocument("text", content)) == "标题\n甲  乙\t丙\n格 |"

    def test_comments_follow_the_text_and_line_ends_of_the_file_are_blanks(self) -> None:
        who = "<dc:creator>甲</dc:creator><dc:date>2024</dc:date>"
        comment = f"<office:annotation>{who}\n <text:p>批注</text:p></office:annotation>"
        content = f"<text:p>前{comment}后\n   半 <text:date>五月</text:date></text:p><text:p>次段</text:p>"
        assert text_of(opendocument("text", content)) == "前后 半 五月\n次段\n\n批注"

    def test_a_sheet_with_a_million_repeated_rows_and_two_tables(self) -> None:
        row = "<table:table-row {}><table:table-cell {}><text:p>{}</text:p></table:table-cell></table:table-row>"
        thrice = 'table:number-columns-repeated="3"'
        many = 'table:number-rows-repeated="1048576"'
        content = (
            f'<table:table table:name="一">{row.format("", "", "值")}{row.format(many, "", "")}</table:table>'
            f'<table:table table:name="二">{row.format("", thrice, "三")}</table:table>'
        )
        found = opendocument("spreadsheet", content)
        assert text_of(found) == "[一]\n值\n\n[二]\n三\t三\t三"
        assert meta_of(found)["sheets"] == ["一", "二"]

    def test_comments_of_cells_follow_the_sheets_and_do_not_stand_in_a_row(self) -> None:
        comment = (
            "<office:annotation><dc:creator>李</dc:creator><text:p>核对</text:p><text:p>过</text:p></office:annotation>"
        )
        cell = f"<table:table-cell>{comment}<text:p>值</text:p></table:table-cell>"
        table = f'<table:table table:name="一"><table:table-row>{cell}</table:table-row></table:table>'
        assert text_of(opendocument("spreadsheet", table)).split() == ["[一]", "值", "核对", "过"]

    def test_pages_of_a_presentation_are_counted(self) -> None:
        content = "<draw:page><text:p>一</text:p></draw:page><draw:page><text:p>二</text:p></draw:page>"
        assert text_of(opendocument("presentation", content)).split() == ["[1]", "一", "[2]", "二"]
        numbered = "<draw:page><text:p>一<text:page-number>&lt;number&gt;</text:page-number></text:p></draw:page>"
        assert text_of(opendocument("presentation", numbered)) == "[1] 一"

    def test_pages_of_pictures_only_have_no_text_layer(self) -> None:
        assert fault_of(opendocument("presentation", "<draw:page><draw:frame/></draw:page>")) == "NO_TEXT_LAYER"

    @pytest.mark.parametrize("kind", ["text", "spreadsheet"])
    def test_encryption_is_told(self, kind: str) -> None:
        manifest = "<manifest><file-entry><encryption-data/></file-entry></manifest>"
        assert fault_of(opendocument(kind, "<text:p>x</text:p>", manifest)) == "PASSWORD_PROTECTED"
